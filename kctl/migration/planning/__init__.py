"""Plans a migration: inventories of nodes, and the document that says what each node gets."""
