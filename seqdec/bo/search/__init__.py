"""Maximization of the acquisition."""
