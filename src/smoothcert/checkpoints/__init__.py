"""Weights on disk: ours, published ones and the bundled models."""
