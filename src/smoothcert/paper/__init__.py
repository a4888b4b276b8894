"""Plan, train and certify the runs of the paper's tables."""
