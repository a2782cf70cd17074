"""Which brokers have the replicas: plans, reassignments, throttles, elections."""
