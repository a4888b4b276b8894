"""Recognize networks that are unchanged since `create_model`, apart from their weights."""

from __future__ import annotations

from typing import Any

from torch import nn

from smoothcert.models.ensemble import Ensemble
from smoothcert.models.layers import Classifier, Normalize
from smoothcert.models.lenet import LeNet
from smoothcert.models.resnet import BasicBlock, Bottleneck, ResNet

_PARTS = {Ensemble, Classifier, Normalize, LeNet, ResNet, BasicBlock, Bottleneck}
_LAYERS = {nn.ModuleList, nn.Sequential, nn.Identity, nn.Conv2d, nn.Linear, nn.MaxPool2d, nn.BatchNorm2d}


def is_unaltered(model: Any) -> bool:
    """Return True for a network from `create_model`, or an ensemble of them, if at most its weights were changed.

    Such a network in eval mode scores each input independently. Layers of other types, hooks, replaced methods and
    BatchNorm without running statistics may change that.
    """
    if not (isinstance(model, Classifier) or (isinstance(model, Ensemble) and model.of_networks)):
        return False
    return all(map(_scores_rows_alone, model.modules()))


def _scores_rows_alone(module: nn.Module) -> bool:
    if type(module) not in _PARTS | _LAYERS or module._forward_hooks or module._forward_pre_hooks:
        return False
    if isinstance(module, nn.BatchNorm2d) and (module.running_mean is None or module.running_var is None):
        return False
    return not any(callable(getattr(type(module), name, None)) for name in vars(module))  # no method was replaced
