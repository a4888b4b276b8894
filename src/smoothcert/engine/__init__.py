"""How work is executed: votes and training steps on a device, in a precision, by one process or several."""
