"""Checkpoints: smoothcert's own format, the published format, and the bundled pretrained models."""
