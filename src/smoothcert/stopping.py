"""Public path of `smoothcert.statistics.stopping`."""

import sys

from smoothcert.statistics import stopping

sys.modules[__name__] = stopping
