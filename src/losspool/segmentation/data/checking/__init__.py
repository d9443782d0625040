"""Validate a dataset, and warn of properties that would silently make a result wrong."""
