"""Moves to another cluster without a stop: records, offsets of groups and settings are copied and kept up to date."""
