"""Connections to brokers: transports, frames, versions, security."""
