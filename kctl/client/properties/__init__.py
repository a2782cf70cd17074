"""Kafka's client properties: which exist, their values, and what they set."""
