"""Recipes: what they may say, how they are read, and the built-in ones."""
