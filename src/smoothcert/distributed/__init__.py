"""Several processes working on one job."""
