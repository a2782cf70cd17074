"""Keeps the limits of connections up to date with the properties of the broker.

Host names in max.connections.per.ip.overrides are resolved at start and when the property changes, as by Kafka.  A
change with a host that cannot be resolved is logged, and the old limits stay in use.

Kafka: ConnectionQuotas.updateMaxConnectionsPerIpOverride (2.8).  Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from kctl.config.dynamic import ConfigView
from kctl.errors import ConfigError
from kctl.limits import LIMITED_HOSTS_MAX
from kctl.server.connection_settings import limit_settings, named_hosts
from kctl.server.network.connection_limits import ConnectionLimits

log = logging.getLogger(__name__)

_OVERRIDES = "max.connections.per.ip.overrides"


class LimitUpdates:
    """Sets `limits.settings`.  `address_of` returns the address of a host name, or None if there is none."""

    def __init__(
        self, configs: ConfigView, limits: ConnectionLimits, address_of: Callable[[str], Awaitable[str | None]]
    ) -> None:
        self._configs = configs
        self._limits = limits
        self._address_of = address_of
        self._addresses: Mapping[str, str] = {}
        self._resolving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Sets the limits and follows their properties.  Raises ConfigError."""
        self._addresses = await self._resolve(named_hosts(self._configs.current))
        self._apply()
        self._configs.subscribe(self._changed)

    async def close(self) -> None:
        """Ends the resolution of host names."""
        if self._resolving is not None:
            self._resolving.cancel()
            await asyncio.gather(self._resolving, return_exceptions=True)

    def _apply(self) -> None:
        configs = self._configs
        self._limits.settings = limit_settings(configs.current, configs.properties, self._addresses)

    def _changed(self) -> None:
        if self._resolving is not None:
            return  # It takes the properties that are in force when it ends.
        if self._unknown_hosts():
            self._resolving = asyncio.create_task(self._update(), name="hosts-of-connection-limits")
            return
        self._try_to_apply()

    async def _update(self) -> None:
        try:
            while hosts := self._unknown_hosts():
                self._addresses = {**self._addresses, **await self._resolve(hosts)}
            self._try_to_apply()
        except ConfigError as error:
            _log_refused(error)
        finally:
            self._resolving = None

    def _try_to_apply(self) -> None:
        try:
            self._apply()
        except ConfigError as error:
            _log_refused(error)

    def _unknown_hosts(self) -> list[str]:
        """The hosts without an address; forgets those that are no longer named, so that they are resolved again."""
        hosts = named_hosts(self._configs.current)
        self._addresses = {host: self._addresses[host] for host in hosts if host in self._addresses}
        return [host for host in hosts if host not in self._addresses]

    async def _resolve(self, hosts: Sequence[str]) -> dict[str, str]:
        """Raises ConfigError."""
        if len(hosts) > LIMITED_HOSTS_MAX:
            raise ConfigError(
                _OVERRIDES, "", f"names {len(hosts)} hosts; at most {LIMITED_HOSTS_MAX} are resolved, use addresses"
            )
        found: dict[str, str] = {}
        for host in hosts:
            address = await self._address_of(host)
            if address is None:
                raise ConfigError(_OVERRIDES, host, "cannot be resolved; correct the name, or use an address")
            found[host] = address
        return found


def _log_refused(error: ConfigError) -> None:
    log.error("cannot change the limits of connections, the old ones stay in use error=%s", error)
