"""Placeholder docstring, to be written."""
