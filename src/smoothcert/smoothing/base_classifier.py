"""Run the base classifier in eval mode with a given precision and deployed form, and check its scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert.errors import SmoothcertError, UsageError, first_line, is_out_of_memory, kind_of, unknown_name
from smoothcert.models.unaltered import is_unaltered
from smoothcert.smoothing.counting import Voter
from smoothcert.smoothing.deploy import COMPILED, FORMS, deploy, is_packaged
from smoothcert.smoothing.precision import check_precision, numerics
from smoothcert.smoothing.workers import copy_module, single_threaded

Model = Callable[[Tensor], Any]


class BaseClassifier:
    """Wrapper that calls a model with micro-batches of noisy inputs and returns scores [micro_batch, classes].

    `num_classes` may be None until the first scores are known.
    """

    def __init__(self, model: Model, form: str, precision: str, num_classes: int | None) -> None:
        check_precision(precision)
        if not isinstance(form, str) or form not in FORMS:
            raise unknown_name("form", form, FORMS)
        if not callable(model):
            proba = "; pass `lambda x: estimator.predict_proba(x.flatten(1).numpy())`"
            hint = proba if hasattr(model, "predict_proba") else ""
            raise UsageError(f"Expected `model` to be callable, but got {kind_of(model)}{hint}.")
        if form == "folded" and not is_packaged(model):
            raise UsageError(
                f"Only networks from `create_model` and ensembles of them can be folded, not {kind_of(model)}; "
                "choose `form='plain'`."
            )
        self.model, self.form, self.precision, self.num_classes = model, form, precision, num_classes
        self.network: Any = None  # the deployed model
        self.independent = False  # True once `IndependenceCheck` has passed
        self.one_thread = False  # True if a check found that copies may score differently
        self.scored_shape: torch.Size | None = None  # shape of the last input that the deployed network has scored
        self._versions = list[Any]()
        self._sources = list[Any]()  # the model and its tensors, kept alive so that their ids stay unique

    @property
    def dtype(self) -> torch.dtype:
        """Data type of noisy inputs; they are cast once, after the noise is added."""
        cast = self.form != "plain" and self.precision == "bf16" and is_packaged(self.model)
        return torch.bfloat16 if cast else torch.float32

    @property
    def scores_rows_alone(self) -> bool:
        """True if the model is known to score each input of a batch independently, as the package's own networks do."""
        return is_unaltered(self.model) or getattr(self.model, "scores_rows_alone", False) is True

    @contextmanager
    def voting(self, model: Model, device: torch.device) -> Iterator[None]:
        """Deploy `model` in eval mode and the chosen precision; restore every module's mode on exit."""
        self.model = model
        modes = {module: module.training for module in model.modules()} if isinstance(model, nn.Module) else {}
        for module in modes:
            module.training = False
        try:
            with single_threaded(device), self._arithmetic(device):
                self._deploy()
                yield
        finally:
            for module, mode in modes.items():
                module.training = mode

    def _deploy(self) -> None:
        """Deploy the model, unless it is already deployed with its current weights.

        Changes of the weights are detected by PyTorch's version counters, which miss in-place writes to `.data`. The
        form `plain` uses the model itself and need not track them.
        """
        weights = list[Tensor]()
        if isinstance(self.model, nn.Module) and self.form != "plain":
            weights = [*self.model.parameters(), *self.model.buffers()]
        versions = [id(self.model), *map(_version, weights)]
        if versions != self._versions:
            self.network, self._versions = deploy(self.model, self.form, self.precision), versions
            self.independent, self.scored_shape = False, None
            self._sources = [self.model, *weights]

    def voters(self, count: int, *, thread_safe: bool = False) -> list[Voter]:
        """Return a voter for each of `count` threads, or only one if voting in several threads may be unsafe.

        Modules are copied for every thread. The package's compiled networks, which have no state, and models that users
        declare to be thread-safe are shared instead. Call within `voting`.
        """
        shared = thread_safe or (self.form in COMPILED and is_packaged(self.model))
        others = [self.network] * (count - 1) if shared else copy_module(self.network, count - 1)
        own = Voter(self.scores, self.network)
        return [own, *(Voter(partial(self._scores, other), other, self._arithmetic) for other in others)]

    @contextmanager
    def _arithmetic(self, device: torch.device) -> Iterator[None]:
        precision = self.precision if self.dtype == torch.float32 else "fp32"  # inputs that were cast need no autocast
        with torch.no_grad(), numerics(precision, device):
            yield

    def scores(self, noisy: Tensor) -> Tensor:
        """Return the scores of one micro-batch. Call within `voting`."""
        return self._scores(self.network, noisy)

    def _scores(self, network: Model, noisy: Tensor) -> Tensor:
        try:
            returned = network(noisy)
        except SmoothcertError:
            raise
        except Exception as error:
            if self.form in COMPILED and isinstance(error, torch._dynamo.exc.TorchDynamoException):
                other = "folded" if is_packaged(self.model) else "plain"
                text = f"The network cannot be compiled ({first_line(error)})"
                raise SmoothcertError(f"{text}; choose `form='{other}'`.") from error
            if self.scored_shape == noisy.shape[1:] or is_out_of_memory(error):
                raise
            self._check_dtype(noisy.dtype)
            reason = first_line(error) or type(error).__name__
            raise UsageError(
                f"The model cannot score a batch of shape {list(noisy.shape)} ({reason}); {_advise(noisy.shape[1:])}."
            ) from error
        scores = _as_tensor(returned, noisy.device)
        if scores.dim() == 2 and scores.shape[1] == 1:
            raise UsageError(
                "Expected one score per class from the model, but got a single score. If it is the score of the second "
                "of two classes, wrap the model in a function that returns `torch.cat([-score, score], dim=1)`."
            )
        if scores.dim() != 2 or len(scores) != len(noisy) or self.num_classes not in (None, scores.shape[1]):
            expected = f"[{len(noisy)}, {self.num_classes or 'classes'}]"
            raise UsageError(f"Expected scores of shape {expected} from the model, but got {list(scores.shape)}.")
        self.scored_shape, self.num_classes = noisy.shape[1:], scores.shape[1]
        return scores

    def _check_dtype(self, given: torch.dtype) -> None:
        """Raise with advice if the model failed because its weights and its inputs have different dtypes."""
        if not isinstance(self.model, nn.Module) or given != torch.float32:  # bfloat16 inputs were cast to match
            return
        kinds = {weight.dtype for weight in self.model.parameters() if weight.is_floating_point()}
        if kinds and given not in kinds:
            raise UsageError(
                f"The model's weights are {kinds.pop()}, but its inputs are {given}; convert the model with "
                "`model.float()`, or wrap it in a module that converts the inputs."
            )


def _advise(shape: torch.Size) -> str:
    if len(shape) == 3 and shape[0] > 4 >= shape[2]:
        return "pass images as [channels, height, width], such as `x.permute(2, 0, 1)` if the channels are last"
    return f"set `input_shape` if one input is not of shape {list(shape)}"


def _as_tensor(returned: Any, device: torch.device) -> Tensor:
    try:
        scores = torch.as_tensor(returned, device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"Expected an array of scores from the model, but got {kind_of(returned)}; wrap the "
            "model in a module that returns only the scores, such as `output.logits`."
        ) from error
    if scores.is_complex() or scores.dtype == torch.bool:
        raise UsageError(f"Expected numeric scores from the model, but got {scores.dtype}.")
    return scores


def _version(weight: Tensor) -> tuple[Any, ...]:
    """Return a value that changes if a weight is replaced, moved or, except for inference tensors, written in place."""
    version = 0 if weight.is_inference() else weight._version
    address = weight.data_ptr() if weight.layout == torch.strided else 0
    return id(weight), version, weight.device, address
