"""Brokers and clusters as processes, for tests of other projects."""
