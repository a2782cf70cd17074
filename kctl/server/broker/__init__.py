"""One broker: its parts, its start and stop, its session and registration."""
