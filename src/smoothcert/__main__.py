"""`python -m smoothcert`."""

import sys

from smoothcert.cli import main

sys.exit(main())
