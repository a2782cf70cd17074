"""`kctl plan`."""
