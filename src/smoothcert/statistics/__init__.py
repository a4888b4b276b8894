"""Pure functions and frozen values behind every certificate. Does not import torch."""
