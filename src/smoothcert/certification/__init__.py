"""Certifying, attacking and re-certifying whole datasets."""
