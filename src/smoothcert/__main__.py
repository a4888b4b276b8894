"""Run the command line with `python -m smoothcert`."""

import sys

from smoothcert.cli import main

sys.exit(main())
