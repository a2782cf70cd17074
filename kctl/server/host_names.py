"""Resolves host names with the operating system's resolver."""

from __future__ import annotations

import asyncio
import socket


async def resolves(name: str) -> bool:
    """True for an IPv4 address or a host name with one; resolved in a thread."""
    try:
        await asyncio.get_running_loop().getaddrinfo(name, None, family=socket.AF_INET, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return True
