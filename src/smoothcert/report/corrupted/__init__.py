"""Results on corrupted images: reading files, averaging over corruptions, and their tables."""
