"""Client quotas: limits on bytes, request time and topic changes per second.

Reading order: `limits` (the configured limits), `meters` (the arithmetic, and the usage of one group of clients),
`client_quotas` (all limits and meters of a broker), `accounts` (the usage of one request).
"""
