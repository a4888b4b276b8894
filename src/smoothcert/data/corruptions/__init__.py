"""The corruptions of MNIST-C and CIFAR-10-C, for any 8-bit images."""

from smoothcert.data.corruptions.making import corrupt, make_corrupted, unavailable_corruptions
from smoothcert.data.corruptions.suites import suite_for

__all__ = ["corrupt", "make_corrupted", "suite_for", "unavailable_corruptions"]
