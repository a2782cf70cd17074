"""Metrics as text of Prometheus, and the HTTP endpoint that serves them."""
