"""Readers, one per file format: each converts files to images and int64 labels.

To add a format, write a module here, with a function that returns images and labels, and add an entry in
`smoothcert.data.registry`.
"""
