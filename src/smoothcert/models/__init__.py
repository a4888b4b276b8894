"""The networks of the paper, and the layer that brings inputs to a network's own units."""

from smoothcert.models.layers import Classifier, Normalize, adapt_inputs
from smoothcert.models.registry import create_model, list_models

__all__ = ["Classifier", "Normalize", "adapt_inputs", "create_model", "list_models"]
