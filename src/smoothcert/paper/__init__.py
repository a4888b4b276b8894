"""The paper's tables as work to do."""
