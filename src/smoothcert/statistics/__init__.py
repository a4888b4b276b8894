"""Pure functions and frozen values behind every certificate. No torch."""
