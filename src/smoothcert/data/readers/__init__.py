"""Readers, one per file format: each turns files into uint8 images and int64 labels.

A new format is one module here, with a function that returns images and labels, and one entry in
`smoothcert.data.registry`.
"""
