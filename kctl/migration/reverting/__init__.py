"""The way back after Kafka 4 has run: its metadata log becomes znodes, and internal topics get older values."""
