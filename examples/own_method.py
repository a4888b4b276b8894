"""A training method of your own: register it, and it trains, resumes and certifies like the ones that come with us.

python examples/own_method.py                                                        # what stands below
python examples/own_method.py train --method soft-vote --dataset mnist-mini --dry-run    # the whole command line
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
    """Train the vote itself: -log of the label's probability, averaged over several noises before the logarithm."""

    name = "soft-vote"

    num_noises: int = at_least_one(2, "noises an image")

    def step(self, model, x, y, *, draws, epoch, soft=None):
        noise = self.sigma * draws.noise(x, self.num_noises)  # [noises, images, channels, height, width]
        scores = model((x + noise).flatten(0, 1)).unflatten(0, noise.shape[:2])  # [noises, images, classes]
        vote = scores.softmax(dim=-1).mean(dim=0)
        loss = -vote.gather(1, y.unsqueeze(1)).clamp(min=1e-20).log().mean()
        return smoothcert.StepOutput(loss, {"vote": vote.detach().amax(dim=1).mean()})


def demonstrate(runs):
    config = smoothcert.load_recipe("mnist-mini-gaussian-1.00", name="own", method="soft-vote", sigma=0.5, epochs=1)
    network = smoothcert.train_run(config, runs)
    smoothed = smoothcert.SmoothedClassifier(smoothcert.load_checkpoint(network).model, sigma=0.5, num_classes=10)
    test = smoothcert.load_dataset("mnist-mini", "test")
    records = smoothcert.certify_dataset(smoothed, test, n=500, indices=range(0, 1000, 50))
    right = [record.radius for record in records if record.correct]
    print(f"{len(right)} of {len(records)} images right, average certified radius {sum(right) / len(records):.3f}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main())
    with tempfile.TemporaryDirectory() as folder:
        demonstrate(Path(folder))
