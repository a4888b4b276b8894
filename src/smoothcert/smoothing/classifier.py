"""The smoothed classifier: what the base classifier answers most often under noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert.errors import SmoothcertError, UsageError, first_line, unknown_name
from smoothcert.models import Classifier
from smoothcert.philox import Purpose
from smoothcert.smoothing.counting import Work, count_within_memory, default_batch, default_micro_batch
from smoothcert.smoothing.deploy import COMPILED, FORMS, Deployed, input_dtype
from smoothcert.smoothing.independence import check_independence
from smoothcert.smoothing.input_checks import AUTO, as_batch, as_indices, as_seed, as_shape, check_range, check_values
from smoothcert.smoothing.noising import add_noise
from smoothcert.smoothing.precision import check_precision, numerics
from smoothcert.statistics import bounds
from smoothcert.statistics.certify import certify_votes
from smoothcert.statistics.noise import Grid, Noise, make_noise


@dataclass(frozen=True)
class Certificate:
    """What CERTIFY found: for one input numbers, for a batch tensors with one entry an input.

    `prediction` is -1 where the classifier abstains, with `radius` 0. `p_lower` bounds the probability of the
    selected class from below. `counts` are the votes it rests on, `selection_counts` those that chose the class.
    """

    prediction: Any
    radius: Any
    p_lower: Any
    counts: Tensor
    selection_counts: Tensor


class SmoothedClassifier(nn.Module):
    """Smooth any callable that maps a batch of inputs to scores [batch, classes].

    Noise of standard deviation `sigma` is added to the input as given; images are taken in [0, 1], and whatever
    scaling a model does after that is part of the model (see `adapt_inputs`). A model that is an `nn.Module` runs in
    eval mode while it votes. The certified function is the deployed one: precision, form (`plain`; `folded`, without
    BatchNorm; `compiled`; `pinned`, compiled without choosing kernels by timing) and micro-batch belong to it. Only
    networks of ours are folded, before they are compiled too. All but the plain form are made at the first vote, and
    anew after the weights have changed.

    Inputs of one or three dimensions are single, of two or four dimensions a batch; `input_shape` overrides that.

    `noise` is `gaussian`, with an l2 radius, `uniform`, with an l1 radius, or the noise of sound certification for
    8-bit images (`smoothcert.statistics.integer_noise.grid_noise`), which takes no network whose kernels are chosen by
    timing.
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
        noise: str | Noise = "gaussian",
    ) -> None:
        super().__init__()
        bounds.check_sigma(sigma)
        self.noise = noise if isinstance(noise, Noise) else make_noise(noise, float(sigma))
        if self.noise.sigma != sigma:
            raise UsageError(f"Expected noise of `sigma` {sigma}, but got {self.noise}.")
        check_precision(precision)
        if form not in FORMS:
            raise unknown_name("form", form, FORMS)
        if not callable(model):
            raise UsageError(f"Expected `model` to be callable, but got {type(model).__name__}.")
        for name, count in (("num_classes", num_classes), ("micro_batch", micro_batch)):
            if count is not None:
                bounds.check_count(name, count)
        check_range(input_range)
        if form == "folded" and not isinstance(model, Classifier):
            raise UsageError(f"Only networks of `create_model` can be folded, but got a {type(model).__name__}.")
        if isinstance(self.noise, Grid) and form == "compiled":
            raise UsageError("Sound certification needs the same kernels every time: choose `--form pinned`.")
        self.model, self.sigma, self.num_classes = model, float(sigma), num_classes
        self.input_shape = None if input_shape is None else as_shape(input_shape)
        self.input_range, self.precision, self.form, self.micro_batch = input_range, precision, form, micro_batch
        self._deployed = Deployed(form, precision)

    def extra_repr(self) -> str:
        """Say what the votes depend on beside the model."""
        return f"sigma={self.sigma}, num_classes={self.num_classes}, precision={self.precision}, form={self.form}"

    def forward(self, x: Tensor, n: int = 1000) -> Tensor:
        """Return each class's share of n votes."""
        return self.counts(x, n).double() / n

    def counts(self, x: Tensor, n: int, *, seed: int | None = 0, index: Any = None, batch: int | None = None) -> Tensor:
        """Return the votes of n noisy copies of x, [classes] or [batch, classes]."""
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
        """Return the smoothed class, or -1 where the votes do not tell it at confidence 1 - alpha."""
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
        """Return the class that n0 votes select, and a radius that n fresh votes prove, at confidence 1 - alpha.

        The noise is a function of (seed, index, sample number); an input's index is its place in the batch unless
        given. The certificate holds for inputs chosen without knowing the noise: for an x that somebody may have
        fitted to it, draw a fresh seed with `seed=None`.
        """
        bounds.check_budget(n0, n, alpha)
        inputs, single = self._inputs(x)
        votes = self.count_stages(inputs, (0, n0, n0 + n), seed=seed, index=index, batch=batch)
        selection, estimation = votes[:, 0], votes[:, 1]
        stages = selection.numpy(), estimation.numpy()
        found = *certify_votes(*stages, self.noise, alpha), bounds.certify_counts(*stages, self.sigma, alpha)[2]
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
        """Return the votes [batch, stages, classes], on the CPU, of the samples between consecutive edges.

        `work` names the micro-batches to count where not all are wanted: for each its place in the batch, and its
        number.
        """
        if edges[-1] >= 1 << 32:
            raise UsageError(f"Expected fewer than 2**32 samples an input, but got {edges[-1]:,}.")
        device = self.device_for(inputs)
        micro_batch = self.micro_batch_for(inputs.shape[1:], device)
        placed = inputs.to(device)
        with self._voting(device):
            votes = count_within_memory(
                self._scores,
                placed,
                as_indices(index, len(inputs)).to(device),
                edges,
                num_classes=self._classes(placed, micro_batch),
                noise=self.noise,
                seed=as_seed(seed),
                purpose=purpose,
                micro_batch=micro_batch,
                batch=default_batch(micro_batch, device) if batch is None else bounds.check_count("batch", batch),
                dtype=input_dtype(self.model, self.form, self.precision),
                work=None if work is None else (work[0].to(device), work[1].to(device)),
            ).cpu()
            self._check_independence(placed[:1], micro_batch)
        if invalid := int(votes[..., -1].sum()):
            raise SmoothcertError(
                f"The model returned NaN for {invalid:,} of {edges[-1] * len(inputs):,} noisy inputs."
            )
        return votes[..., :-1]

    def scores(self, noisy: Tensor) -> Tensor:
        """Return the deployed network's scores of a micro-batch of noisy inputs in float32."""
        with self._voting(noisy.device):
            dtype = input_dtype(self.model, self.form, self.precision)
            return self._scores(noisy.to(dtype, copy=True)).clone()  # a model may write into what it is given

    def device_for(self, inputs: Tensor) -> torch.device:
        """Return where the votes are counted: where the model's weights are, or else the inputs."""
        if isinstance(self.model, nn.Module):
            for tensor in (*self.model.parameters(), *self.model.buffers()):
                if tensor.is_meta:
                    raise UsageError("The model is on the device `meta` and has no weights; load them first.")
                return tensor.device
        return inputs.device

    def micro_batch_for(self, shape: Sequence[int], device: torch.device) -> int:
        """Return how many noisy copies the network sees at once."""
        return self.micro_batch or default_micro_batch(torch.Size(shape).numel(), device)

    def _inputs(self, x: Any) -> tuple[Tensor, bool]:
        batch, single = as_batch(x, self.input_shape)
        self.check_values(batch)
        return batch, single

    def check_values(self, batch: Tensor) -> None:
        """Refuse NaN and values outside the range that the noise level refers to."""
        check_values(batch, self.noise, self.input_range)

    def _scores(self, noisy: Tensor) -> Tensor:
        try:
            returned = self._deployed.network(noisy)
        except RuntimeError as error:
            if self.form in COMPILED and isinstance(error, torch._dynamo.exc.TorchDynamoException):
                other = "folded" if isinstance(self.model, Classifier) else "plain"
                text = f"The network cannot be compiled ({first_line(error)})"
                raise SmoothcertError(f"{text}; choose `--form {other}`.") from error
            if "type" in str(error) and not isinstance(error, torch.OutOfMemoryError):
                self._check_dtype(noisy.dtype)
            raise
        scores = _as_scores(returned, noisy.device)
        expected = (len(noisy), self.num_classes) if self.num_classes else (len(noisy), "classes")
        if scores.dim() != 2 or len(scores) != len(noisy) or self.num_classes not in (None, scores.shape[1]):
            raise UsageError(f"Expected scores of shape {list(expected)} from the model, but got {list(scores.shape)}.")
        if scores.shape[1] == 1:
            raise UsageError(
                "Expected a score for each class from the model, but got a single one; one that scores the second of "
                "two classes only has to be wrapped in a function that returns both, such as (-score, score)."
            )
        return scores

    def _check_dtype(self, given: torch.dtype) -> None:
        """Say what to do where a model failed because its weights are of another type than its inputs."""
        if not isinstance(self.model, nn.Module) or given != torch.float32:  # what is cast here is cast to fit
            return
        kinds = {weight.dtype for weight in self.model.parameters() if weight.is_floating_point()}
        if kinds and given not in kinds:
            raise UsageError(
                f"The model's weights are {kinds.pop()}, but its inputs {given}; convert it with `model.float()`, or "
                "wrap it in a module that converts its inputs."
            )

    def _classes(self, inputs: Tensor, micro_batch: int) -> int:
        if self.num_classes is None:
            dtype = input_dtype(self.model, self.form, self.precision)
            shape = micro_batch, *inputs.shape[1:]
            # A copy: a model may write into what it is given, and these are the caller's inputs.
            self.num_classes = self._scores(inputs[:1].to(dtype).expand(shape).clone()).shape[1]
        return self.num_classes

    def _check_independence(self, one: Tensor, micro_batch: int) -> None:
        """Refuse, at the first votes, a network of somebody else's whose votes depend on each other."""
        if self._deployed.independent or isinstance(self.model, Classifier):
            return
        none = torch.zeros(1, dtype=torch.int64, device=one.device)
        samples = torch.arange(micro_batch, device=one.device).unsqueeze(0)
        dtype = input_dtype(self.model, self.form, self.precision)
        noisy = add_noise(self.noise, one, none, none, samples, seed=0, purpose=Purpose.PREDICT, dtype=dtype)
        check_independence(self._scores, noisy[0])
        self._deployed.independent = True

    @contextmanager
    def _voting(self, device: torch.device) -> Iterator[None]:
        """Evaluation mode, no gradients, the chosen precision; every module's own mode is restored afterwards."""
        modules = list(self.model.modules()) if isinstance(self.model, nn.Module) else []
        modes = [module.training for module in modules]
        for module in modules:
            module.training = False
        autocast = input_dtype(self.model, self.form, self.precision) == torch.float32
        try:
            with torch.no_grad(), numerics(self.precision if autocast else "fp32", device):
                self._deployed.renew(self.model)
                yield
        finally:
            for module, mode in zip(modules, modes, strict=True):
                module.training = mode


def _as_scores(returned: Any, device: torch.device) -> Tensor:
    """Return what a model returned as a tensor that has a largest value."""
    try:
        scores = torch.as_tensor(returned, device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"Expected an array of scores from the model, but got a {type(returned).__name__}; wrap it in a module "
            "that returns the scores alone, such as its `logits`."
        ) from error
    if scores.is_complex() or scores.dtype == torch.bool:
        raise UsageError(f"Expected scores that are numbers from the model, but got {scores.dtype}.")
    return scores
