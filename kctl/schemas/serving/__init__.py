"""The server: the topic that holds the state, HTTP, users."""
