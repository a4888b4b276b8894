"""Freed memory stays in the process, unless the user has chosen otherwise."""

import platform
import subprocess
import sys

import pytest
from launching import environment

CODE = """
import resource, torch
from smoothcert.runtime.host_memory import keep_freed_memory
print(keep_freed_memory())
def work():
    for size in (11, 3, 7, 11):
        torch.ones(size << 18) + torch.ones(size << 18)
work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def kept_and_faults(**variables):
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=environment(**variables), capture_output=True, text=True, check=True
    )
    kept, faults = done.stdout.split()
    return kept, int(faults)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is set")
def test_freed_memory_is_kept_and_its_pages_are_not_filled_again():
    kept, faults = kept_and_faults()
    assert kept == "True"
    chosen, usual = kept_and_faults(MALLOC_TRIM_THRESHOLD_=1 << 17)
    assert chosen == "False", "the user's setting stays"
    assert faults < usual / 10
