"""Reading: positions, fetches, groups."""
