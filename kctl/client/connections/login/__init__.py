"""Logins of clients: SASL settings, tokens and exchanges, and the reasons why TLS connections fail."""
