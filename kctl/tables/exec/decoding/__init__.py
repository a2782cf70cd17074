"""Keys and values of records as columns."""
