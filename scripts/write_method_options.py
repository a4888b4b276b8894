"""Write the table of training methods' options, which `smoothcert train --help` reads without torch."""

import json

import smoothcert.methods  # noqa: F401 - defines the methods that the table describes
from smoothcert.training.method_options import TABLE, known_methods

if __name__ == "__main__":
    TABLE.write_text(json.dumps(known_methods(), indent=1) + "\n", encoding="utf-8")
