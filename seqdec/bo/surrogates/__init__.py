"""Beliefs about the function in the unit cube."""
