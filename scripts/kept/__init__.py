"""The project's own results in `results/`: keeping them, the page that shows them, and the check that they hold."""
