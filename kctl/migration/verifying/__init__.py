"""Fingerprints of a cluster before and after a migration, and their comparison."""
