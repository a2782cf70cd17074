"""Copies of topics, with the offsets of groups."""
