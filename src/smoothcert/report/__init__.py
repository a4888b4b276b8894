"""From per-image results to the field's tables."""
