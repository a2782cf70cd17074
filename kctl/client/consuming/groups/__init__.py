"""A consumer in a group: what it reads, commits and has processed."""
