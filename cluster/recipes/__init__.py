"""Recipes: named data files, the weakest layer of the settings above the defaults."""
