"""`kctl apply`."""
