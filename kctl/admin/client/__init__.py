"""The administration client for applications, on an event loop and blocking (docs/client-operations.md)."""
