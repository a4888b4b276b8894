"""Environment, deadlines, errors of several runs, and atomic files."""
