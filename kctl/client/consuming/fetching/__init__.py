"""Fetches: which partitions from which broker, the batches that wait, and the requests."""
