"""Acquisitions of one or several outputs, under constraints and failures."""
