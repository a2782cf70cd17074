"""Marks log lines that peers can cause at will."""

from __future__ import annotations

PEERS = "peers"
"""The attribute of such a record."""


def by_peer(listener: str) -> dict[str, str]:
    """`extra` of a line that the clients of a listener cause: it is folded, also below the level of warnings.

    Lines of different listeners are folded apart.
    """
    return {PEERS: listener}
