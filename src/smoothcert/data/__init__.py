"""Datasets of labeled inputs: loading, registering, downloading and corrupting them."""

from smoothcert.data.corrupted import find_corrupted
from smoothcert.data.files import data_dir
from smoothcert.data.image_data import ImageData, select, select_rows
from smoothcert.data.registry import list_datasets, load_dataset, register_dataset

__all__ = [
    "ImageData",
    "data_dir",
    "find_corrupted",
    "list_datasets",
    "load_dataset",
    "register_dataset",
    "select",
    "select_rows",
]
