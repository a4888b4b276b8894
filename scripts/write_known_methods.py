"""Write the table of training methods that `smoothcert train --help` and reports read without torch."""

import dataclasses
import json

import smoothcert.methods  # noqa: F401 - defines the methods that the table describes
from smoothcert.training.known_methods import TABLE, known_methods

if __name__ == "__main__":
    methods = {name: dataclasses.asdict(method) for name, method in known_methods().items()}
    TABLE.write_text(json.dumps(methods, indent=1) + "\n", encoding="utf-8")
