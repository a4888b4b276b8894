"""Names of the supported precisions, apart from `precision` so that they need no torch."""

PRECISIONS = ("fp32", "tf32", "bf16")
