"""Names of hosts, asked of the operating system's resolver."""

from __future__ import annotations

import asyncio
import socket


async def resolves(name: str) -> bool:
    """Whether the name is an IPv4 address or the name of a host that has one; asked in a thread."""
    try:
        await asyncio.get_running_loop().getaddrinfo(name, None, family=socket.AF_INET, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return True
