"""Whether the ports of a broker can be bound: all are bound for an instant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kctl.config.broker import BrokerConfig
from kctl.config.listeners import listener_endpoints
from kctl.server.metrics.endpoint import bind_problem as metrics_bind_problem
from kctl.server.network.acceptor import bind_problem, bound_socket


class PortProblem(NamedTuple):
    """An address that cannot be bound."""

    address: str
    message: str


def port_problems(config: BrokerConfig, *, with_listeners: bool = True) -> Iterator[PortProblem]:
    """The ports of a broker that cannot be bound, also because two of them are the same."""
    endpoints = listener_endpoints(config) if with_listeners else ()
    addresses: list[tuple[str, int, Callable[[str, int, OSError], str]]]
    addresses = [(endpoint.host, endpoint.port, bind_problem) for endpoint in endpoints]
    if config.metrics_port >= 0:
        addresses.append((config.metrics_host, config.metrics_port, metrics_bind_problem))
    taken = []
    try:
        for host, port, problem in addresses:
            try:
                # All stay bound until the last one is.
                taken.append(bound_socket(host, port))
            except OSError as error:
                yield PortProblem(f"{host}:{port}", problem(host, port, error))
    finally:
        for sock in taken:
            sock.close()
