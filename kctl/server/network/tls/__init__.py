"""TLS on listeners."""
