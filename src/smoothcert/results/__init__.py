"""Per-image results on disk. No torch."""
