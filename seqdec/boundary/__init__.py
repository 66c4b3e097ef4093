"""Checks of users' arguments."""
