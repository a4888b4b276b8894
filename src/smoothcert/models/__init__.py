"""The package's networks, users' own networks, ensembles, and `adapt_inputs` for models with other input ranges."""

from smoothcert.models.ensemble import Ensemble
from smoothcert.models.layers import Classifier, NamedModel, Normalize, adapt_inputs
from smoothcert.models.registry import build_model, create_model, find_factory, list_models, register_model
from smoothcert.models.user_model import Factory, ModuleCopies, UserModel, as_factory, build_user_model, unwrap

__all__ = [
    "Classifier",
    "Ensemble",
    "Factory",
    "ModuleCopies",
    "NamedModel",
    "Normalize",
    "UserModel",
    "adapt_inputs",
    "as_factory",
    "build_model",
    "build_user_model",
    "create_model",
    "find_factory",
    "list_models",
    "register_model",
    "unwrap",
]
