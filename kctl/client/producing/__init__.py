"""Writing: batches, partitioners, transactions."""
