"""Bayesian linear regressions with an estimated noise variance, and the agents made of them.

nig         the conjugate regression: normal weights, inverse-gamma noise variances
diagonal    the same with a variance for each weight and no covariances, for many features
noise       what both know of the noise variances
units       numbers in standard units, by what was seen of them
rewards     rewards as a regression is told them
linear      the agent that is one regression
mixture     several regressions, weighted by their past predictive density
views       the features of contexts, candidates and boxes
members     the regressions of the default agent
auto        the default agent
"""
