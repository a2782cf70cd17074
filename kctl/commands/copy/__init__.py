"""`kctl copy`."""
