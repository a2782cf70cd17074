"""What a test can ask of its broker: faults, the clock, the traffic; over a socket that only brokers of tests have."""
