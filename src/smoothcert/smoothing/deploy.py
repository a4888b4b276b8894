"""The form in which a network votes: as it is, folded, or folded and compiled.

A `compiled` network's kernels are chosen by timing them; a `pinned` one's by rules alone, so that they are the same
every time.

Folding merges BatchNorm and the normalisation's scale into the convolutions: the same function up to rounding, with
fewer passes over memory. Which form is used is part of the certified function and stands in the sidecar.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.nn.utils.parametrize import is_parametrized

from smoothcert.errors import UsageError
from smoothcert.kernels import network_kernels
from smoothcert.models import Classifier
from smoothcert.smoothing.cuda_graphs import Replayed

FORMS = ("plain", "folded", "compiled", "pinned")
_SILENT = {"autotune_num_choices_displayed": 0, "max_autotune_report_choices_stats": False}
COMPILED: dict[str, dict[str, Any]] = {
    "compiled": {"options": {"max_autotune": True, "coordinate_descent_tuning": True, **_SILENT}},
    "pinned": {"options": {"deterministic": True}},
}
"""How the forms are compiled that are; graphs are our own, so that folded networks have them too."""
# Operations of a job that repays the compiler's time on an H200; around our own kernels it has little left to gain.
# Measured, see benchmarks/README.md.
_WORTH_COMPILING, _WORTH_COMPILING_KERNELS = 1e15, 2e16


def choose_deployment(model: Callable[[Tensor], Any], shape: Sequence[int], samples: int) -> tuple[str, str]:
    """Return the form and precision that suit a job of so many samples where the model lies.

    Our own networks are folded, on a CUDA device also cast to bfloat16, and compiled where that repays.
    """
    if not isinstance(model, Classifier):
        return "plain", "fp32"
    if next(model.parameters()).device.type != "cuda":
        return "folded", "fp32"
    return "compiled" if worth_compiling(samples * operations(model, shape), network_kernels()) else "folded", "bf16"


def worth_compiling(work: float, kernels: bool) -> bool:
    """Whether a job of so many operations repays the time of compiling a network, whose kernels may be our own."""
    return work > (_WORTH_COMPILING_KERNELS if kernels else _WORTH_COMPILING)


def operations(model: Classifier, shape: Sequence[int]) -> int:
    """Return the floating-point operations of one input: those of its convolutions and linear layers."""
    example, found = copy.deepcopy(model).cpu().eval(), 0

    def count(layer: nn.Module, _: Any, made: Tensor) -> None:
        nonlocal found
        found += 2 * layer.get_parameter("weight").numel() * (made.numel() // made.shape[1])

    for layer in example.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.register_forward_hook(count)
    with torch.no_grad():
        example(torch.zeros(1, *shape))
    return found


def deploy(model: Callable[[Tensor], Any], form: str, precision: str) -> Callable[[Tensor], Any]:
    """Return what is called with noisy inputs; only our own networks are folded, and only then cast to bfloat16.

    On a CUDA device these are replayed as graphs, which another model may not bear.
    """
    if form == "plain":
        return model
    network: Any = model
    if isinstance(model, Classifier):
        network = fold(model)
        if precision == "bf16":
            network = with_kernels(network.to(torch.bfloat16))
    if form in COMPILED:
        # Kernels that do not fit the device are passed over, which would be reported as an error each.
        logging.getLogger("torch._inductor.select_algorithm").setLevel(logging.CRITICAL)
        warnings.filterwarnings("ignore", "TypedStorage is deprecated")  # the compiler's own use of it, in torch 2.11
        network = torch.compile(network, dynamic=False, **COMPILED[form])
    if isinstance(model, Classifier) and next(model.parameters()).is_cuda:
        network = Replayed(network)
    return network  # type: ignore[no-any-return]


class Deployed:
    """A network in the form in which it votes: made at the first vote, and anew where its weights have changed since.

    Changes are seen by PyTorch's own count of them, which misses what is written into `.data`.
    """

    def __init__(self, form: str, precision: str) -> None:
        self.form, self.precision = form, precision
        self.network: Any = None
        self.independent = False  # whether it was seen to answer every input by itself
        self._versions = list[Any]()
        self._of = list[Any]()  # kept, so that nothing else comes to lie where one of them was

    def renew(self, model: Callable[[Tensor], Any]) -> None:
        """Take a network, or make its form anew; one that is plain is what it is."""
        if self.form == "plain":
            self.independent &= self.network is model
            self.network = model
            return
        weights = [*model.parameters(), *model.buffers()] if isinstance(model, nn.Module) else []
        versions = [id(model), *(_version(weight) for weight in weights)]
        if self.network is None or versions != self._versions:
            self.network, self._versions = deploy(model, self.form, self.precision), versions
            self.independent = False
            self._of = [model, *weights]


def _version(weight: Tensor) -> tuple[Any, ...]:
    """Return what becomes another when a weight does."""
    count = 0 if weight.is_inference() else weight._version
    place = weight.data_ptr() if weight.layout == torch.strided else 0
    return id(weight), count, weight.device, place


def input_dtype(model: Callable[[Tensor], Any], form: str, precision: str) -> torch.dtype:
    """Return the type noisy inputs are cast to, once, after the noise was added in float32."""
    cast = form != "plain" and precision == "bf16" and isinstance(model, Classifier)
    return torch.bfloat16 if cast else torch.float32


def with_kernels(model: Classifier) -> Classifier:
    """Put our own kernels in the place of what they compute, where the device has them.

    That is what a network names as `pooled`, with a linear layer after the last, and ResNets as a whole.
    """
    if not (next(model.parameters()).is_cuda and network_kernels()):
        return model
    if names := getattr(model.network, "pooled", ()):
        from smoothcert.models.cuda.pooled_convolution import PooledConv

        for name in names:
            conv = model.network.get_submodule(name)
            assert isinstance(conv, nn.Conv2d)
            setattr(model.network, name, PooledConv(conv, flat=name == names[-1]))
        return model
    from smoothcert.models.cuda.bottleneck import BottleneckNetwork, has_bottlenecks
    from smoothcert.models.cuda.residual_network import ResidualNetwork, has_kernels

    if has_kernels(model.network):
        model.network = ResidualNetwork(model.network)
    elif has_bottlenecks(model.network):
        model.network = BottleneckNetwork(model.network)
    return model


def fold(model: Classifier) -> Classifier:
    """Return a copy in eval mode without BatchNorm, the normalisation reduced to a subtraction, or to nothing.

    The mean cannot move into a first convolution that pads with zeros after the subtraction, not before.
    """
    for name, module in model.named_modules():
        if module._forward_hooks or module._forward_pre_hooks or is_parametrized(module):
            raise UsageError(f"Folding would lose the hook or parametrisation of `{name}`; choose the form `plain`.")
    folded = copy.deepcopy(model).eval()
    for module in list(folded.network.modules()):
        for number in (1, 2, 3):
            conv, norm = (getattr(module, f"{kind}{number}", None) for kind in ("conv", "bn"))
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                setattr(module, f"conv{number}", fuse_conv_bn_eval(conv, norm))
                setattr(module, f"bn{number}", nn.Identity())
        if isinstance(module, nn.Sequential) and len(module) == 2:
            conv, norm = module
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                module[0], module[1] = fuse_conv_bn_eval(conv, norm), nn.Identity()
    stem, normalize = folded.network.get_submodule("conv1"), folded.normalize
    assert isinstance(stem, nn.Conv2d)
    with torch.no_grad():
        stem.weight /= normalize.std.view(1, -1, 1, 1)
        normalize.std.fill_(1.0)
        if stem.padding == (0, 0) and stem.bias is not None:
            stem.bias -= stem.weight.sum(dim=(2, 3)) @ normalize.mean.expand(stem.in_channels)
            folded.normalize = nn.Identity()  # type: ignore[assignment]
    return folded.to(memory_format=torch.channels_last)  # type: ignore[no-any-return,call-overload]
