"""What the brokers of a cluster agree on: the controller, its requests, topics, configurations."""
