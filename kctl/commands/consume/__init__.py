"""`kctl consume`: read records of a topic."""
