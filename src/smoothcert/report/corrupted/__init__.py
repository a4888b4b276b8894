"""Results on corrupted images: read files, average over corruptions, and build tables."""
