"""The producer and the consumer for applications, on an event loop and blocking (docs/client.md)."""
