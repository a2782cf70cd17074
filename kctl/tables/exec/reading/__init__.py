"""Batches of an offset range, from the partition leader to chunks whose records are located."""
