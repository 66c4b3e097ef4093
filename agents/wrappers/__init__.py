"""Wrappers: agent -> agent.

averaging   acts by the average of parameters
rehearsal   shows a filter past observations
standard    contexts in standard units
"""
