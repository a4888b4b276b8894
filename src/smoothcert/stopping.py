"""Public alias of the module `smoothcert.statistics.stopping`."""

import sys

from smoothcert.statistics import stopping

sys.modules[__name__] = stopping
