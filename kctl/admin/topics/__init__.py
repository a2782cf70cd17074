"""Topics and their properties, offsets, records, replicas and transactions."""
