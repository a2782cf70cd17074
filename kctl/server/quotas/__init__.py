"""Client quotas: what clients may produce, fetch, compute and change per second.

Reading order: `rates` (the arithmetic), `limits` (what is configured), `meters` (what one group of clients has used),
`client_quotas` (all of them, and the clients that share them), `accounts` (what one request uses).
"""
