"""Certified robustness by randomized smoothing.

>>> import smoothcert
>>> smoothed = smoothcert.SmoothedClassifier(model, sigma=0.25, num_classes=10)   # doctest: +SKIP
>>> smoothed.certify(image, n=10_000).radius                                      # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from smoothcert.certification.attack import smoothed_gradient
    from smoothcert.certification.dataset import certify_dataset, certify_sequentially, predict_dataset
    from smoothcert.checkpoints.checkpoint import export_checkpoint, load_checkpoint, save_checkpoint
    from smoothcert.checkpoints.pretrained import list_pretrained, load_pretrained
    from smoothcert.data import ImageData, list_datasets, load_dataset, register_dataset, select
    from smoothcert.errors import SmoothcertError, UsageError
    from smoothcert.methods import Method, StepOutput, create_method, list_methods, register_method
    from smoothcert.models import Ensemble, adapt_inputs, create_model, list_models, register_model
    from smoothcert.models.denoised import Denoised, OneStepDiffusion
    from smoothcert.results.frame import to_frame
    from smoothcert.results.reader import read_counts, read_results
    from smoothcert.smoothing.cascade import Cascade, CascadeCertificate
    from smoothcert.smoothing.classifier import Certificate, SmoothedClassifier
    from smoothcert.statistics import bounds, metrics, stopping
    from smoothcert.training.config import TrainConfig
    from smoothcert.training.recipes import list_recipes, load_recipe
    from smoothcert.training.runs import train_run, train_runs
    from smoothcert.training.step_draws import StepDraws
    from smoothcert.training.train import train

# Names are imported when first used, so that `smoothcert --help` never waits for torch.
_HOMES = {
    "certification.attack": ("smoothed_gradient",),
    "certification.dataset": ("certify_dataset", "certify_sequentially", "predict_dataset"),
    "checkpoints.checkpoint": ("export_checkpoint", "load_checkpoint", "save_checkpoint"),
    "data": ("ImageData", "list_datasets", "load_dataset", "register_dataset", "select"),
    "errors": ("SmoothcertError", "UsageError"),
    "methods": ("Method", "StepOutput", "create_method", "list_methods", "register_method"),
    "models": ("Ensemble", "adapt_inputs", "create_model", "list_models", "register_model"),
    "models.denoised": ("Denoised", "OneStepDiffusion"),
    "checkpoints.pretrained": ("list_pretrained", "load_pretrained"),
    "training.config": ("TrainConfig",),
    "training.recipes": ("list_recipes", "load_recipe"),
    "results.frame": ("to_frame",),
    "results.reader": ("read_counts", "read_results"),
    "smoothing.cascade": ("Cascade", "CascadeCertificate"),
    "smoothing.classifier": ("Certificate", "SmoothedClassifier"),
    "training.runs": ("train_run", "train_runs"),
    "training.step_draws": ("StepDraws",),
    "training.train": ("train",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = ("bounds", "metrics", "stopping")

__all__ = [
    "Cascade",
    "CascadeCertificate",
    "Certificate",
    "Denoised",
    "Ensemble",
    "ImageData",
    "Method",
    "OneStepDiffusion",
    "SmoothcertError",
    "SmoothedClassifier",
    "StepDraws",
    "StepOutput",
    "TrainConfig",
    "UsageError",
    "adapt_inputs",
    "bounds",
    "certify_dataset",
    "certify_sequentially",
    "create_method",
    "create_model",
    "export_checkpoint",
    "list_datasets",
    "list_methods",
    "list_models",
    "list_pretrained",
    "list_recipes",
    "load_checkpoint",
    "load_dataset",
    "load_pretrained",
    "load_recipe",
    "metrics",
    "predict_dataset",
    "read_counts",
    "read_results",
    "register_dataset",
    "register_method",
    "register_model",
    "save_checkpoint",
    "select",
    "smoothed_gradient",
    "stopping",
    "to_frame",
    "train",
    "train_run",
    "train_runs",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"smoothcert.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'smoothcert' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"smoothcert.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
