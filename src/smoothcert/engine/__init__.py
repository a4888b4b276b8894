"""How work is executed on a device: precision, and the counting of votes."""
