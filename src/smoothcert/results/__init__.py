"""Per-image results on disk. Does not import torch."""
