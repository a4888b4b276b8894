"""The process around the work: environment, deadlines, files."""
