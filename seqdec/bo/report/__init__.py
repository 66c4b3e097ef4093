"""Figures of a search and its parameters' importance."""
