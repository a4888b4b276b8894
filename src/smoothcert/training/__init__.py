"""From a recipe to trained weights."""
