"""What requests of the REST API read and change: pure functions of the state and a request."""
