"""Sockets and frames: acceptor, then connection."""
