"""Networks that run on the kernels in `smoothcert.kernels`; imported only if Triton is installed."""
