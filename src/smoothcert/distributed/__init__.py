"""Coordination of several processes (ranks) that work on one job."""
