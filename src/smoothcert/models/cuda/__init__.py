"""Networks that run on the Triton kernels in `smoothcert.kernels`; imported only if Triton is installed."""
