"""Certify, predict and attack whole datasets, and recertify stored results."""
