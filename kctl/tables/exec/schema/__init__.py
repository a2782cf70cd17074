"""The types of columns: of kctl, of Arrow, and those that schemas and JSON values have."""
