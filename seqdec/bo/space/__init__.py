"""Dimensions, conditions and constraints, and their encoding in the unit cube."""
