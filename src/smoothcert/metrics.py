"""Public alias of the module `smoothcert.statistics.metrics`."""

import sys

from smoothcert.statistics import metrics

sys.modules[__name__] = metrics
