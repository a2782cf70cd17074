"""Parses lists of `host:port`, the format of `bootstrap.servers` and `zookeeper.connect`.  Pure."""

from __future__ import annotations

from kctl.errors import UsageError
from kctl.output.quantities import PORT_MAX, parse_integer

_LABEL_LENGTH_MAX = 63
"""RFC 1035.  Python's idna codec raises for longer labels."""
_NAME_LENGTH_MAX = 253
"""RFC 1035, as text and without the last dot."""
_NOT_IN_HOSTS = frozenset("/?#\\ \t")
"""They separate parts of a URL, as which kazoo reads an address."""


def parse_addresses(text: str, *, default_port: int) -> tuple[tuple[str, int], ...]:
    """Return the hosts and ports of a list like `host:port,[::1]:9092,host`.  Raises UsageError.

    The error does not show a user and a password before @, as in URLs.
    """
    shown = without_user(text)
    if shown != text:
        raise UsageError(f"'{shown}' is given with a user or a password (@); write HOST:PORT")
    addresses = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = part.rpartition(":")
        if not colon or port.endswith("]"):
            host, port = part, str(default_port)
        is_open, is_closed = host.startswith("["), host.endswith("]")
        host = host.removeprefix("[").removesuffix("]")
        if is_open != is_closed or not is_host(host):
            raise UsageError(f"'{part}' is not an address; write HOST:PORT")
        addresses.append((host, parse_integer(port, f"'{part}' is not an address: the port", low=1, high=PORT_MAX)))
    if not addresses:
        raise UsageError(f"'{text}' names no host; write HOST:PORT[,...]")
    return tuple(addresses)


def address_text(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def without_user(text: str) -> str:
    """Return the text after @, for errors about addresses: what comes before may be a user and a password."""
    return text.rpartition("@")[2]


def is_host(host: str) -> bool:
    """Return whether the text can be the name of a host, or an IP address."""
    if _NOT_IN_HOSTS.intersection(host) or not host.isprintable() or len(host) > _NAME_LENGTH_MAX:
        return False
    labels = host.removesuffix(".").split(".")
    if not all(0 < len(label) <= _LABEL_LENGTH_MAX for label in labels):
        return False
    try:
        host.encode("ascii" if host.isascii() else "idna")
    except UnicodeError:
        return False
    return True
