"""Resolves host names with the operating system's resolver."""

from __future__ import annotations

import asyncio
import socket


async def resolves(name: str) -> bool:
    """True for an IPv4 address or a host name with one; resolved in a thread."""
    return await address_of(name) is not None


async def address_of(name: str) -> str | None:
    """The first IPv4 address of a host name, or None; resolved in a thread."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, family=socket.AF_INET, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    return str(found[0][4][0]) if found else None
