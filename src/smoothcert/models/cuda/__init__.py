"""Networks that run on the package's own CUDA kernels."""
