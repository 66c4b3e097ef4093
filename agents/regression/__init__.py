"""Bayesian linear regressions with an estimated noise variance, and their agents."""
