"""Readers, one per file format: each converts files to images and int64 labels.

To add a dataset in a new format, write a module here, with a function `find(root, split)` that returns a function that
reads images and labels, or None if the files are missing. Then add the dataset to `smoothcert.data.registry`.
"""
