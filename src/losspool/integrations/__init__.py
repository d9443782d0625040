"""Helpers for other frameworks. Each file needs its framework, so nothing is imported before it is named."""
