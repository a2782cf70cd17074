"""Client telemetry (KIP-714): metrics of a client that its brokers have subscribed to."""
