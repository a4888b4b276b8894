"""The paper's networks, and `adapt_inputs` for models with other input units."""

from smoothcert.models.ensemble import Ensemble
from smoothcert.models.layers import Classifier, Normalize, adapt_inputs
from smoothcert.models.registry import create_model, list_models

__all__ = ["Classifier", "Ensemble", "Normalize", "adapt_inputs", "create_model", "list_models"]
