"""Results on corrupted images."""
