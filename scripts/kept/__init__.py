"""The project's own results in `results/`: storing them, RESULTS.md, and checking both."""
