"""Smoothed classifiers, and the code that counts their votes on a device."""
