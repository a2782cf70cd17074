"""Keeps the limits of connections up to date with the properties of the broker.

Host names in max.connections.per.ip.overrides are resolved at start and when the property changes, as by Kafka.  A
dynamic change with a host that cannot be resolved is refused; one that is in ZooKeeper nevertheless is logged once, and
the old limits stay in use, at start those of server.properties.

Kafka: ConnectionQuotas.updateMaxConnectionsPerIpOverride (2.8).  Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from kctl.config.broker import BrokerConfig
from kctl.config.dynamic import ConfigView
from kctl.errors import ConfigError
from kctl.limits import Subject, bound
from kctl.server.network.connection_limits import ConnectionLimits, limit_settings, named_hosts
from kctl.server.znodes.problem_log import ProblemLog

LIMITED_HOSTS_MAX = bound(
    Subject.CONNECTIONS,
    "host names in max.connections.per.ip.overrides",
    64,
    "names",
    on_excess="the broker does not start, or keeps the old limits; addresses are not counted",
)


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
        self._problems = ProblemLog(log, "cannot change the limits of %s, the old ones stay in use error=%s")

    async def start(self) -> None:
        """Set the limits and follow their properties.  Raises ConfigError if those at start are unusable."""
        configs = self._configs
        try:
            self._addresses = await self._resolve(named_hosts(configs.current))
            self._apply()
        except ConfigError as error:
            if not (configs.dynamic_broker or configs.dynamic_default):
                raise
            self._report(error)
            self._addresses = await self._resolve(named_hosts(configs.static_config))
            self._limits.settings = limit_settings(configs.static_config, configs.static, self._addresses)
        configs.subscribe(self._changed)
        configs.add_check(self.check)

    async def check(self, config: BrokerConfig, properties: Mapping[str, str]) -> None:
        """Raise ConfigError if the changes among these properties could not be used."""
        used = {*named_hosts(self._configs.current), *self._addresses}
        unknown = [host for host in named_hosts(config) if host not in used]
        limit_settings(config, properties, await self._resolve(unknown))

    async def close(self) -> None:
        """End the resolution of host names."""
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
            self._report(error)
        finally:
            self._resolving = None

    def _try_to_apply(self) -> None:
        try:
            self._apply()
            self._report(None)
        except ConfigError as error:
            self._report(error)

    def _report(self, error: ConfigError | None) -> None:
        self._problems.report("connections", *([] if error is None else [str(error)]))

    def _unknown_hosts(self) -> list[str]:
        """Return the hosts without an address; remove those that are no longer named, so that they are resolved
        again.
        """
        hosts = named_hosts(self._configs.current)
        self._addresses = {host: self._addresses[host] for host in hosts if host in self._addresses}
        return [host for host in hosts if host not in self._addresses]

    async def _resolve(self, hosts: Sequence[str]) -> dict[str, str]:
        """Resolve the hosts, or raise ConfigError."""
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
