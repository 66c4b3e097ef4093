"""Figures of a search and the importance of its parameters."""
