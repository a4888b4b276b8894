"""The main results table: its numbers, the paper's numbers, and the text formats."""
