"""Results on corrupted images: reads files, averages over corruptions, and builds tables."""
