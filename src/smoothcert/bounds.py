"""Public alias of the module `smoothcert.statistics.bounds`."""

import sys

from smoothcert.statistics import bounds

sys.modules[__name__] = bounds
