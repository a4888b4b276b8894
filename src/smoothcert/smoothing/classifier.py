"""The smoothed classifier, which predicts the class that the base classifier returns most often under noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.models import UserModel
from smoothcert.philox import Purpose
from smoothcert.smoothing.base_classifier import BaseClassifier
from smoothcert.smoothing.counting import (
    Voter,
    Work,
    all_work,
    count_within_memory,
    default_batch,
    default_micro_batch,
)
from smoothcert.smoothing.deploy import COMPILED
from smoothcert.smoothing.independence import CheckSchedule, IndependenceCheck
from smoothcert.smoothing.input_checks import AUTO, as_batch, as_indices, as_seed, as_shape, check_range, check_values
from smoothcert.smoothing.noising import add_noise
from smoothcert.statistics import bounds
from smoothcert.statistics.certify import certify_votes
from smoothcert.statistics.noise import GridNoise, Noise, make_noise


@dataclass(frozen=True)
class Certificate:
    """Result of `SmoothedClassifier.certify`. For a batch, each attribute is a tensor with one entry per input.

    Attributes:
        prediction: The certified class, or -1 if the classifier abstains; int or int64 [batch].
        radius: The certified radius, 0 for an abstention; float or float64 [batch].
        p_lower: Lower confidence bound on the probability of the selected class; float or float64 [batch].
        counts: The votes behind `p_lower`, int64 [classes] or [batch, classes].
        selection_counts: The votes that selected the class, in the same shape as `counts`.

    Example:
        >>> import smoothcert, torch
        >>> smoothed = smoothcert.SmoothedClassifier(lambda x: torch.cat([x, -x], 1), sigma=0.5, num_classes=2)
        >>> certificate = smoothed.certify(torch.tensor([1.0]), n=1000)
        >>> certificate.prediction, int(certificate.counts.sum()), certificate.radius < 1.0
        (0, 1000, True)
    """

    prediction: int | Tensor
    radius: float | Tensor
    p_lower: float | Tensor
    counts: Tensor
    selection_counts: Tensor

    def to_dict(self) -> dict[str, Any]:
        """Return all fields by name as plain numbers and lists, ready for JSON."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value.tolist() if isinstance(value, Tensor) else value for name, value in values.items()}


class SmoothedClassifier(nn.Module):
    """Randomized smoothing of any callable that maps a batch of inputs to scores [batch, classes].

    Noise is added to the input as given. Images are expected in [0, 1]; if a model needs another scale, the conversion
    is part of the model (see `adapt_inputs`). An `nn.Module` votes in eval mode. The certificate is for the model as
    deployed: precision, form and micro-batch size are part of the certified function, and the sidecar of a results
    file records them.

    Args:
        model: The base classifier.
        sigma: Standard deviation of the noise.
        num_classes: Number of classes; by default it is taken from the first scores.
        input_shape: Shape of one input (default: the shape that `train` recorded in the network, if any). If the shape
            is unknown, inputs with one or three dimensions are single inputs, and those with two or four are batches.
        input_range: Range (low, high) that inputs must lie in, or None to accept any. By default [0, 1] for images.
        precision: `fp32`, `tf32` or `bf16`.
        form: `plain`; `folded`, with BatchNorm folded into the convolutions (only for networks from `create_model` and
            ensembles of them); `compiled`, folded where possible and compiled; or `pinned`, compiled without choosing
            kernels by timing. Forms other than `plain` are prepared at the first vote, and again after the weights
            have changed.
        micro_batch: Number of noisy copies that the model sees at once (default: chosen by input size and device).
        threads: Number of threads that vote on the CPU, each with its own copy of an `nn.Module` (default:
            `torch.get_num_threads()` for an `nn.Module` that can be copied, 1 for any other model). Set it for a
            function only if the function is thread-safe. Votes do not depend on the number of threads.
        noise: `gaussian` (l2 radius), `uniform` (l1 radius), or `grid_noise(sigma, dimensions)` of
            `smoothcert.statistics.integer_noise` for sound certificates of 8-bit images.

    Raises:
        UsageError: If an argument is invalid, or arguments contradict each other.

    Example:
        >>> import smoothcert, torch
        >>> def nearest(x):  # the base classifier: which of two points is nearer?
        ...     return -torch.stack([(x - 0.2).square().sum(1), (x - 0.8).square().sum(1)], dim=1)
        >>> smoothed = smoothcert.SmoothedClassifier(nearest, sigma=0.25, num_classes=2)
        >>> smoothed.predict(torch.tensor([0.1, 0.2]))
        0
    """

    def __init__(
        self,
        model: Callable[[Tensor], Any],
        sigma: float,
        num_classes: int | None = None,
        *,
        input_shape: Sequence[int] | None = None,
        input_range: tuple[float, float] | str | None = AUTO,
        precision: str = "fp32",
        form: str = "plain",
        micro_batch: int | None = None,
        threads: int | None = None,
        noise: str | Noise = "gaussian",
    ) -> None:
        super().__init__()
        bounds.check_sigma(sigma)
        self.noise = noise if isinstance(noise, Noise) else make_noise(noise, float(sigma))
        if self.noise.sigma != sigma:
            raise UsageError(f"Expected `noise` to have sigma = {sigma}, but got {self.noise}.")
        for name, count in (("num_classes", num_classes), ("micro_batch", micro_batch), ("threads", threads)):
            if count is not None:
                bounds.check_count(name, count)
        check_range(input_range)
        self._base = BaseClassifier(model, form, precision, num_classes)
        if isinstance(self.noise, GridNoise) and form == "compiled":
            raise UsageError("Sound certification needs the same kernels every time: choose `form='pinned'`.")
        self.model, self.sigma, self.micro_batch, self.input_range = model, float(sigma), micro_batch, input_range
        self.threads = threads
        if input_shape is None and isinstance(model, UserModel):
            input_shape = model.input_shape
        self.input_shape = None if input_shape is None else as_shape(input_shape)
        self._schedule = CheckSchedule()

    @property
    def num_classes(self) -> int | None:
        """Number of classes; None until the first vote if it was not given."""
        return self._base.num_classes

    @property
    def form(self) -> str:
        """Deployed form of the model: `plain`, `folded`, `compiled` or `pinned`."""
        return self._base.form

    @property
    def precision(self) -> str:
        """Precision of the model's forward passes: `fp32`, `tf32` or `bf16`."""
        return self._base.precision

    def extra_repr(self) -> str:
        """Return the settings for `repr`."""
        return f"sigma={self.sigma}, num_classes={self.num_classes}, precision={self.precision}, form={self.form}"

    def forward(self, x: Tensor, n: int = 1000) -> Tensor:
        """Return each class's share of the votes.

        Args:
            x: One input or a batch.
            n: Number of noise samples per input.

        Returns:
            Shares between 0 and 1, [classes] for one input or [batch, classes].

        Raises:
            UsageError: If an argument is invalid.

        Example:
            >>> import smoothcert, torch
            >>> smoothed = smoothcert.SmoothedClassifier(lambda x: torch.cat([x, -x], 1), sigma=0.5, num_classes=2)
            >>> smoothed(torch.tensor([3.0])).tolist()
            [1.0, 0.0]
        """
        return self.counts(x, n).double() / n

    def counts(self, x: Tensor, n: int, *, seed: int | None = 0, index: Any = None, batch: int | None = None) -> Tensor:
        """Count the votes of n noisy copies of x.

        Args:
            x: One input or a batch.
            n: Number of noise samples per input.
            seed: Seed of the noise, or None for a fresh one.
            index: One integer per input, below 2**32, that identifies its noise (default: a hash of the input).
            batch: Number of noisy samples in memory at once (default: chosen for the device).

        Returns:
            Votes, [classes] for one input or [batch, classes].

        Raises:
            UsageError: If an argument is invalid.

        Example:
            >>> import smoothcert, torch
            >>> smoothed = smoothcert.SmoothedClassifier(lambda x: torch.cat([x, -x], 1), sigma=0.5, num_classes=2)
            >>> smoothed.counts(torch.tensor([3.0]), n=100).tolist()
            [100, 0]
        """
        bounds.check_count("n", n)
        inputs, single = self._inputs(x)
        votes = self.count_stages(inputs, (0, n), seed=seed, index=index, batch=batch, purpose=Purpose.PREDICT)[:, 0]
        return votes[0] if single else votes

    def predict(
        self,
        x: Tensor,
        n: int = 1000,
        alpha: float = 0.001,
        *,
        seed: int | None = 0,
        index: Any = None,
        batch: int | None = None,
    ) -> Any:
        """Predict the class of one input or a batch.

        Args:
            x: One input or a batch.
            n: Number of noise samples per input.
            alpha: Maximum probability of predicting a class other than the most likely class under noise.
            seed: Seed of the noise, or None for a fresh one.
            index: One integer per input, below 2**32, that identifies its noise (default: a hash of the input).
            batch: Number of noisy samples in memory at once (default: chosen for the device).

        Returns:
            The class, or -1 if n votes do not settle it at confidence 1 - alpha: an int, or a tensor for a batch.

        Raises:
            UsageError: If an argument is invalid, or n is too small to predict any class at `alpha`.

        Example:
            >>> import smoothcert, torch
            >>> smoothed = smoothcert.SmoothedClassifier(lambda x: torch.cat([x, -x], 1), sigma=0.5, num_classes=2)
            >>> smoothed.predict(torch.tensor([[3.0], [-3.0], [0.0]])).tolist()
            [0, 1, -1]
        """
        bounds.check_prediction(n, alpha)
        classes = bounds.predict_counts(self.counts(x, n, seed=seed, index=index, batch=batch).numpy(), alpha)
        return torch.from_numpy(classes) if classes.ndim else int(classes)

    def certify(
        self,
        x: Tensor,
        n0: int = 100,
        n: int = 100_000,
        alpha: float = 0.001,
        *,
        seed: int | None = 0,
        index: Any = None,
        batch: int | None = None,
    ) -> Certificate:
        """Certify one input or a batch.

        The noise is a function of (seed, index, sample number). The certificate holds for inputs that were chosen
        without knowledge of the noise; if x may have been fitted to the noise, draw a fresh seed with `seed=None`.

        Args:
            x: One input or a batch.
            n0: Number of noise samples that select the class.
            n: Number of fresh noise samples that bound the probability of the class.
            alpha: Maximum probability that the certificate is wrong.
            seed: Seed of the noise, or None for a fresh one.
            index: One integer per input, below 2**32, that identifies its noise (default: a hash of the input).
            batch: Number of noisy samples in memory at once (default: chosen for the device).

        Returns:
            The certificate: prediction, radius, lower bound and all votes.

        Raises:
            UsageError: If an input is not valid, or n is too small to certify anything at `alpha`.

        Example:
            >>> import smoothcert, torch
            >>> smoothed = smoothcert.SmoothedClassifier(lambda x: torch.cat([x, -x], 1), sigma=0.5, num_classes=2)
            >>> certificate = smoothed.certify(torch.tensor([0.5]), n=10_000)
            >>> certificate.prediction, 0.4 < certificate.radius < 0.5
            (0, True)
        """
        bounds.check_budget(n0, n, alpha)
        inputs, single = self._inputs(x)
        votes = self.count_stages(inputs, (0, n0, n0 + n), seed=seed, index=index, batch=batch)
        selection, estimation = votes[:, 0], votes[:, 1]
        found = certify_votes(selection.numpy(), estimation.numpy(), self.noise, alpha)
        prediction, radius, p_lower = (torch.from_numpy(values) for values in found)
        if single:
            return Certificate(int(prediction), float(radius), float(p_lower), estimation[0], selection[0])
        return Certificate(prediction, radius, p_lower, estimation, selection)

    def count_stages(
        self,
        inputs: Tensor,
        edges: Sequence[int],
        *,
        seed: int | None = 0,
        index: Any = None,
        batch: int | None = None,
        purpose: int = Purpose.CERTIFY,
        work: Work | None = None,
    ) -> Tensor:
        """Return the votes of each input by stage, [inputs, stages, classes], on the CPU.

        Stage i consists of each input's noise samples edges[i] to edges[i+1] - 1. `work` selects the micro-batches to
        count (default: all) by a pair of tensors: for each, the position of its input in `inputs`, and its own position
        among that input's micro-batches.
        """
        if edges[-1] >= 1 << 32:
            raise UsageError(
                f"Expected fewer than 2**32 noise samples per input, but got {edges[-1]:,}; choose a smaller n."
            )
        if batch is not None:
            bounds.check_count("batch", batch)
        device = self.device_for(inputs)
        micro_batch = self.micro_batch_for(inputs.shape[1:], device)
        placed = inputs.detach().to(device)
        total = len(work[0]) * micro_batch if work else len(inputs) * (edges[-1] - edges[0])
        images, blocks = (part.to(device) for part in work or all_work(len(inputs), edges, micro_batch))
        threads = min(self.threads or torch.get_num_threads(), len(images)) if device.type == "cpu" else 1
        indices, drawn_seed = as_indices(index, inputs).to(device), as_seed(seed)

        def draw(image: Tensor, samples: Tensor) -> Tensor:
            options: dict[str, Any] = {"seed": drawn_seed, "purpose": purpose, "dtype": self._base.dtype}
            return add_noise(self.noise, placed, image, indices, samples, **options)

        with self._base.voting(self.model, device):
            classes = self._classes(placed, micro_batch)
            with self._independent_votes(placed[0], micro_batch, total, threads):
                voters = self._voters(threads)
                votes = count_within_memory(
                    voters,
                    draw,
                    (images, blocks),
                    inputs=len(inputs),
                    edges=edges,
                    num_classes=classes,
                    micro_batch=micro_batch,
                    batch=batch or default_batch(micro_batch, device, len(voters)),
                ).cpu()
                if invalid := int(votes[..., -1].sum()):
                    text = f"The model returned NaN for {invalid:,} of {int(votes.sum()):,} noisy inputs"
                    raise SmoothcertError(f"{text}; check its weights.")
        return votes[..., :-1]

    def scores(self, noisy: Tensor) -> Tensor:
        """Return the base classifier's scores of one micro-batch of noisy inputs."""
        with self._base.voting(self.model, noisy.device):
            return self._base.scores(noisy.to(self._base.dtype, copy=True)).clone()  # models may write into inputs

    def device_for(self, inputs: Tensor) -> torch.device:
        """Return the device that counts votes: the model's, or the device of `inputs` if the model has no weights."""
        if isinstance(self.model, nn.Module):
            for tensor in (*self.model.parameters(), *self.model.buffers()):
                if tensor.is_meta:
                    raise UsageError("The model is on the device `meta` and has no weights; load them first.")
                return tensor.device
        return inputs.device

    def micro_batch_for(self, shape: Sequence[int], device: torch.device) -> int:
        """Return the number of noisy inputs of a given shape that the model sees at once."""
        return self.micro_batch or default_micro_batch(torch.Size(shape).numel(), device)

    def check_values(self, batch: Tensor) -> None:
        """Raise if inputs are not finite, or not valid for the noise or `input_range`."""
        check_values(batch, self.noise, self.input_range)

    def _inputs(self, x: Any) -> tuple[Tensor, bool]:
        batch, single = as_batch(x, self.input_shape)
        self.check_values(batch)
        return batch, single

    def _classes(self, inputs: Tensor, micro_batch: int) -> int:
        # Learn the number of classes, and compile before threads start. The inputs scored here never vote, so the
        # independence check still detects a model that caches their scores.
        if self.num_classes is None or (self.form in COMPILED and self._base.scored_shape is None):
            shades = torch.linspace(0, 1, micro_batch, device=inputs.device).view(-1, *[1] * (inputs.dim() - 1))
            self._base.scores((inputs[:1] * shades).to(self._base.dtype))
        assert self.num_classes is not None
        return self.num_classes

    def _voters(self, threads: int) -> list[Voter]:
        promised = self.threads is not None and not isinstance(self.model, nn.Module)
        return self._base.voters(1 if self._base.one_thread else threads, thread_safe=promised)

    @contextmanager
    def _independent_votes(self, one: Tensor, micro_batch: int, votes: int, threads: int) -> Iterator[None]:
        """Check, before and after the enclosed voting, that a user's model scores inputs independently.

        The check runs the first time that the model votes, and later at random times.
        """
        due, base = self._schedule.due(votes), self._base
        if base.scores_rows_alone or (base.independent and not due):
            yield
            return
        options: dict[str, Any] = {"seed": 0, "purpose": Purpose.PREDICT, "dtype": base.dtype}
        zero = torch.zeros(1, dtype=torch.int64, device=one.device)

        def draw(rows: int) -> Tensor:
            samples = torch.arange(rows, device=one.device).unsqueeze(0)
            return add_noise(self.noise, one.unsqueeze(0), zero, zero, samples, **options)[0]

        check = IndependenceCheck(
            self._base.scores,
            one,
            draw,
            micro_batch,
            precision=self.precision,
            fixed_shape=self.form in COMPILED,
            thorough=not base.independent,
        )
        check.before_votes()
        base.one_thread = False
        base.one_thread = not all(check.same_scores(copied.score) for copied in self._voters(min(threads, 2))[1:])
        yield
        check.after_votes()
        base.independent = True
        self._schedule.draw(micro_batch)
