"""Read, write, merge and verify files of per-image results. Does not import torch."""
