"""Names of the supported precisions, separate from `precision` to avoid importing torch."""

PRECISIONS = ("fp32", "tf32", "bf16")
