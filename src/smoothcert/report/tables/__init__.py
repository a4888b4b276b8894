"""Tables of results and their formats."""
