"""`kctl completion`: print a completion script for a shell."""
