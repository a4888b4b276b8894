"""Forms in which a base classifier votes: plain, folded, compiled or pinned.

Folding merges BatchNorm and the scale of the input normalization into the convolutions. A folded network computes the
same function up to rounding, with fewer passes over memory. (The package's kernel for CIFAR ResNets
instead applies BatchNorm to its float32 sums.) `compiled` and `pinned` networks are folded, then compiled: `compiled`
selects kernels by timing them, `pinned` by fixed rules, so that every run uses the same kernels. The form is part of
the certified function and is recorded in the sidecar.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.nn.utils.parametrize import is_parametrized

from smoothcert.errors import UsageError
from smoothcert.kernels import network_kernels
from smoothcert.models import Classifier, Ensemble
from smoothcert.smoothing.cuda_graphs import Replayed

FORMS = ("plain", "folded", "compiled", "pinned")
_SILENT = {"autotune_num_choices_displayed": 0, "max_autotune_report_choices_stats": False}
COMPILED: dict[str, dict[str, Any]] = {
    "compiled": {"options": {"max_autotune": True, "coordinate_descent_tuning": True, **_SILENT}},
    "pinned": {"options": {"deterministic": True}},
}
"""Arguments of `torch.compile` by form. CUDA graphs are captured separately, so that folded networks use them too."""
_PAIRS = (("conv1", "bn1"), ("conv2", "bn2"), ("conv3", "bn3"), ("0", "1"))
"""Names of a convolution and its BatchNorm, within a block and within the projection of a shortcut."""
# Number of operations above which compiling pays off on an H200 (measured, see benchmarks/README.md). Networks that run
# on the package's own kernels have less to gain.
_WORTH_COMPILING, _WORTH_COMPILING_KERNELS = 1e15, 2e16


def choose_deployment(model: Callable[[Tensor], Any], shape: Sequence[int], samples: int) -> tuple[str, str]:
    """Return the fastest form and precision to count the votes of `samples` noise samples on the model's device.

    The package's networks are folded. On a CUDA device they are also cast to bfloat16, and compiled if that pays off.
    """
    if not is_packaged(model):
        return "plain", "fp32"
    if next(model.parameters()).device.type != "cuda":
        return "folded", "fp32"
    return "compiled" if worth_compiling(samples * operations(model, shape), network_kernels()) else "folded", "bf16"


def is_packaged(model: Any) -> TypeGuard[Classifier | Ensemble]:
    """Return True for networks from `create_model`, and ensembles of them."""
    return isinstance(model, Classifier) or (isinstance(model, Ensemble) and model.of_networks)


def worth_compiling(work: float, kernels: bool) -> bool:
    """Return True if compiling pays off for `work` operations; `kernels` is True if the package's kernels are used."""
    return work > (_WORTH_COMPILING_KERNELS if kernels else _WORTH_COMPILING)


def operations(model: Classifier | Ensemble, shape: Sequence[int]) -> int:
    """Return the number of floating-point operations per input in convolutions and linear layers."""
    example, total = copy.deepcopy(model).cpu().eval(), 0

    def count(layer: nn.Module, _: Any, output: Tensor) -> None:  # PyTorch's own counter would import Triton
        nonlocal total
        total += 2 * layer.get_parameter("weight").numel() * (output.numel() // output.shape[1])

    for layer in example.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.register_forward_hook(count)
    with torch.no_grad():
        example(torch.zeros(1, *shape))
    return total


def deploy(model: Callable[[Tensor], Any], form: str, precision: str) -> Callable[[Tensor], Any]:
    """Return the function that scores noisy inputs with a model in a given form and precision.

    Only the package's networks are folded, cast to bfloat16 and, on a CUDA device, replayed as CUDA graphs; other
    models might not support this.
    """
    if form == "plain":
        return model
    if isinstance(model, Ensemble):
        return model.with_members(lambda member: deploy(member, form, precision))
    network: Any = model
    if isinstance(model, Classifier):
        network = fold(model)
        if precision == "bf16":
            network = with_kernels(network.to(torch.bfloat16), model)
    if form in COMPILED:
        # The compiler skips kernels that do not fit the device, but would log an error for each.
        logging.getLogger("torch._inductor.select_algorithm").setLevel(logging.CRITICAL)
        warnings.filterwarnings("ignore", "TypedStorage is deprecated")  # raised by torch 2.11's own compiler
        network = torch.compile(network, dynamic=False, **COMPILED[form])
    if isinstance(model, Classifier) and next(model.parameters()).is_cuda:
        network = Replayed(network)
    return network  # type: ignore[no-any-return]


def with_kernels(folded: Classifier, model: Classifier) -> Classifier:
    """Replace layers of `folded`, the folded form of `model`, with the package's kernels if the device supports them.

    There are kernels for CIFAR ResNets (see `has_kernels`), ResNets of bottlenecks (see `has_bottlenecks`), and the
    convolutions that a network lists in `pooled`. The last convolution in `pooled` must be followed by a linear layer.
    """
    if not (next(folded.parameters()).is_cuda and network_kernels()):
        return folded
    if names := getattr(folded.network, "pooled", ()):
        from smoothcert.models.cuda.pooled_convolution import PooledConv

        for name in names:
            conv = folded.network.get_submodule(name)
            assert isinstance(conv, nn.Conv2d)
            setattr(folded.network, name, PooledConv(conv, flat=name == names[-1]))
        return folded
    from smoothcert.models.cuda.bottleneck import BottleneckNetwork, has_bottlenecks
    from smoothcert.models.cuda.resident_network import ResidentNetwork, has_kernels, kernels_compile

    if has_kernels(model.network) and kernels_compile(next(folded.parameters()).device):
        folded.network = ResidentNetwork(model.network, model.normalize.std, folded.network)
    elif has_bottlenecks(folded.network):
        folded.network = BottleneckNetwork(folded.network)
    return folded


def voting_kernel(model: Any, form: str, precision: str, device: torch.device, shape: Sequence[int]) -> str | None:
    """Return the voting kernel's name if it rounds differently from earlier versions of smoothcert, else None."""
    if form == "plain" or precision != "bf16" or device.type != "cuda" or not network_kernels():
        return None
    from smoothcert.models.cuda.resident_network import has_kernels, kernels_compile

    members = model.members if isinstance(model, Ensemble) else [model]
    supported = tuple(shape[1:]) == (32, 32) and any(
        isinstance(member, Classifier) and has_kernels(member.network) for member in members
    )
    return "resident_stage" if supported and kernels_compile(device) else None


def fold(model: Classifier) -> Classifier:
    """Return a copy in eval mode without BatchNorm, and with the input normalization reduced to a subtraction.

    The subtraction is folded into a bias as well, unless the first convolution pads its input: zeros are padded
    after the subtraction, so the bias would be wrong at the borders.
    """
    for name, module in model.named_modules():
        if module._forward_hooks or module._forward_pre_hooks or is_parametrized(module):
            part = f"`{name}`" if name else "the model"
            raise UsageError(f"Folding would drop the hook or parametrization of {part}; choose `form='plain'`.")
    folded = copy.deepcopy(model).eval()
    for module in list(folded.network.modules()):
        for first, second in _PAIRS:
            conv, norm = getattr(module, first, None), getattr(module, second, None)
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                setattr(module, first, fuse_conv_bn_eval(conv, norm))
                setattr(module, second, nn.Identity())
    stem, normalize = folded.network.get_submodule("conv1"), folded.normalize
    assert isinstance(stem, nn.Conv2d)
    with torch.no_grad():
        stem.weight /= normalize.std.view(1, -1, 1, 1)
        normalize.std.fill_(1.0)
        if stem.padding == (0, 0) and stem.bias is not None:
            stem.bias -= stem.weight.sum(dim=(2, 3)) @ normalize.mean.expand(stem.in_channels)
            folded.normalize = nn.Identity()  # type: ignore[assignment]
    return folded.to(memory_format=torch.channels_last)  # type: ignore[no-any-return,call-overload]
