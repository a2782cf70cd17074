"""Reads the head of an HTTP/1.1 request of a scraper.  Pure.

Only the headers Accept and Connection are used.  A request with a body is refused, because HTTP servers and proxies
disagree about where bodies end (request smuggling).
"""

from __future__ import annotations

from typing import NamedTuple

_METHODS = frozenset({"GET", "HEAD"})


class Refused(Exception):
    """The request gets this status, and the connection is closed."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class HttpRequest(NamedTuple):
    """The parts of a request that the endpoint uses."""

    path: str
    """The path without the query."""
    accept: str
    is_head: bool
    keeps_alive: bool


def parse_head(head: bytes) -> HttpRequest:
    """The request whose head ends with an empty line.  Raises Refused."""
    try:
        lines = head.decode("ascii").split("\r\n")
    except UnicodeDecodeError:
        raise Refused(400, "the head of the request is not ASCII") from None
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise Refused(400, "the request line is not valid HTTP/1.1")
    method, target, version = parts
    if method not in _METHODS:
        raise Refused(405, "only GET and HEAD are allowed: the endpoint is read-only")
    headers = _headers(lines[1:])
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise Refused(400, "the request has a body")
    connection = headers.get("connection", "").lower()
    return HttpRequest(
        path=target.partition("?")[0],
        accept=headers.get("accept", ""),
        is_head=method == "HEAD",
        keeps_alive=version != "HTTP/1.0" and "close" not in connection,
    )


def _headers(lines: list[str]) -> dict[str, str]:
    """The values by name in lower case; those of a repeated header are joined by commas (RFC 9110, 5.2)."""
    headers: dict[str, str] = {}
    for line in lines:
        if not line:
            continue
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise Refused(400, "a header line has no name")
        name, value = name.lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
