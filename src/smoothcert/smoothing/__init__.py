"""The smoothed classifier and how its votes are counted on a device."""
