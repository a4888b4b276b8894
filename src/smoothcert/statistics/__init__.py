"""Statistics of randomized smoothing: bounds, certificates, stopping rules and metrics. Does not import torch."""
