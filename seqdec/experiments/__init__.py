"""Experiments that the command line offers: each builds an environment and agents, lets them meet, and reports."""
