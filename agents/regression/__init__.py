"""Bayesian linear regressions with an estimated noise variance, and the agents made of them.

units       numbers and rewards in standard units
conjugate   normal weights, inverse-gamma noise variances
logs        the same of the logarithm of rewards
linear      the agent that is one regression
features    rows of contexts, candidates and boxes, and their features
mixture     regressions weighted by their past predictive density
auto        the default agent: a mixture on raw and learned features
"""
