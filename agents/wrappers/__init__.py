"""Wrappers: averages of parameters, rehearsal, standard units."""
