"""Define your own training method, and train and certify with it as with the built-in ones.

python examples/own_method.py                             # train, certify and print the result
python examples/own_method.py train --method soft-vote    # `smoothcert train` with the new method
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import smoothcert
from smoothcert.cli import main
from smoothcert.methods.base import at_least_one


@smoothcert.register_method
@dataclass(frozen=True, kw_only=True)
class SoftVote(smoothcert.Method):
    """Cross-entropy of the average prediction over several noise samples."""

    name = "soft-vote"

    num_noises: int = at_least_one(2, "noise samples per image")

    def step(self, model, x, y, *, draws, epoch, soft=None):
        noise = self.sigma * draws.noise(x, self.num_noises)  # [num_noises, *x.shape]
        scores = model((x + noise).flatten(0, 1)).unflatten(0, noise.shape[:2])
        vote = scores.softmax(dim=-1).mean(dim=0)
        loss = -vote.gather(1, y.unsqueeze(1)).clamp(min=1e-20).log().mean()
        return smoothcert.StepOutput(loss, {"vote": vote.detach().amax(dim=1).mean()})


def demonstrate(runs):
    recipe = "mnist-mini-gaussian-1.00"
    config = smoothcert.load_recipe(recipe, name="own", method="soft-vote", sigma=0.5, epochs=1)
    model = smoothcert.load_checkpoint(smoothcert.train_run(config, runs)).model
    smoothed = smoothcert.SmoothedClassifier(model, sigma=0.5, num_classes=10)
    test = smoothcert.load_dataset("mnist-mini", "test")
    records = smoothcert.certify_dataset(smoothed, test, n=500, indices=range(0, 1000, 50))
    radii = [record.radius for record in records if record.correct]
    acr = sum(radii) / len(records)
    print(f"{len(radii)} of {len(records)} images correct, average certified radius {acr:.3f}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main())
    with tempfile.TemporaryDirectory() as folder:
        demonstrate(Path(folder))
