"""Exports and imports, their summaries and status."""
