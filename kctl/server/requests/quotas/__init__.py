"""Client quotas: limits on bytes, request time and topic changes per second.

Reading order: `rates` (the arithmetic), `limits` (the configured limits), `meters` (the usage of one group of clients),
`client_quotas` (all limits and meters of a broker), `accounts` (the usage of one request).
"""
