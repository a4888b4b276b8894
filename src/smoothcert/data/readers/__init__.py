"""Readers, one per file format: each converts files to images and int64 labels."""
