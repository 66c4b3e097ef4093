"""Bayesian linear regressions with an estimated noise variance, and the agents `linear` and `auto` made of them."""
