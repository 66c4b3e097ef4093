"""Bayesian optimization in one call: the arguments, the loop, and who calls the function."""
