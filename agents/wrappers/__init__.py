"""What is put around an agent, and makes another agent of it.

averaging   acts by the average of the parameters over the last steps
rehearsal   shows a filter again what it has seen
standard    gives it contexts in standard units
"""
