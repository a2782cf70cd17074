"""One accepted connection: bytes received, frames, requests in turn, bytes to send."""
