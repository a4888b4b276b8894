"""Environment, memory, deadlines and interrupts, errors of several runs, and safe reading and writing of files."""
