"""All quotas of a broker: the configured limits, and the meters of the clients to which they apply.

The configuration comes from ZooKeeper: `replace` at the start of a session, `change` after each notification.  A
request of a client without limits costs one lookup, and its usage is not recorded.

Each broker enforces quotas separately, as in Kafka: a client may use the limit on each broker.

Kafka: QuotaFactory, ClientQuotaManager, ClientRequestQuotaManager, ControllerMutationQuotaManager (2.8).

Owner: event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Generic, TypeVar

from kctl.config.broker import BrokerConfig
from kctl.config.kinds import LONG_MAX
from kctl.limits import QUOTA_NAME_CHARACTERS_MAX, Subject, bound
from kctl.security.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaGroup,
)
from kctl.server.requests.context import peer_address
from kctl.server.requests.quotas.limits import InvalidQuota, QuotaLimits, client_entity, ip_name, quota_values
from kctl.server.requests.quotas.meters import (
    BucketMeter,
    FoundClient,
    LimitedClient,
    Meter,
    MeterReading,
    Meters,
    QuotaWindows,
    RateMeter,
)
from kctl.server.znodes.problem_log import ProblemLog
from kctl.system.environment import Clock

QUOTA_GROUPS_MAX = bound(
    Subject.QUOTAS,
    "groups of clients whose usage is kept, for each kind of quota",
    10_000,
    "groups",
    on_excess="the usage of some that are not in use is dropped, or of one that is",
)
QUOTA_CLIENTS_MAX = bound(
    Subject.QUOTAS,
    "pairs of user and client id whose quotas are kept ready for the next request",
    20_000,
    "pairs",
    on_excess="the quotas that apply are looked up again",
)


log = logging.getLogger(__name__)

AddressOf = Callable[[str], Awaitable[str | None]]
"""Returns the IPv4 address of a host name, or None if there is none."""

M = TypeVar("M", bound=Meter)

_FORGET_EVERY_MS = 30_000
"""The minimum time between two searches for inactive groups.  Kafka: Metrics.ExpireSensorTask."""


class _Quota(Generic[M]):
    """One kind of quota."""

    def __init__(self, create: Callable[[float], M], fallback: int = LONG_MAX) -> None:
        self.limits = QuotaLimits(None if fallback == LONG_MAX else fallback)
        self.meters = Meters(create, QUOTA_GROUPS_MAX)

    def meter(self, user: str, client_id: str, now_ms: int) -> M | None:
        limit = self.limits.limit_of(user, client_id)
        return None if limit is None else self.meters.meter(limit, now_ms)


class ClientQuotas:
    """See the module's docstring."""

    def __init__(self, config: BrokerConfig, clock: Clock, address_of: AddressOf) -> None:
        self._clock = clock
        self._address_of = address_of
        windows = QuotaWindows(config.quota_window_num, config.quota_window_size_seconds * 1000)
        topic_windows = QuotaWindows(
            config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000
        )
        self._produce = _Quota(lambda limit: RateMeter(limit, windows), config.quota_producer_default)
        self._fetch = _Quota(lambda limit: RateMeter(limit, windows), config.quota_consumer_default)
        self._request = _Quota(lambda limit: RateMeter(limit, windows, throttle_ms_max=windows.sample_ms))
        self._mutation = _Quota(lambda limit: BucketMeter(limit, topic_windows))
        self._quotas: Mapping[str, _Quota[RateMeter] | _Quota[BucketMeter]] = {
            PRODUCER_BYTE_RATE: self._produce,
            CONSUMER_BYTE_RATE: self._fetch,
            REQUEST_PERCENTAGE: self._request,
            CONTROLLER_MUTATION_RATE: self._mutation,
        }
        self._problems = ProblemLog(log, "ignoring invalid quota, the former one stays in use path=/config/%s error=%s")
        self._connection_rates: dict[str | None, int] = {}
        """By address; None for the default."""
        self.version = 0
        """Changes when the meters of a client may have changed."""
        self._known_clients: dict[tuple[str, str], LimitedClient | None] = {}
        self.has_limits = False
        """Whether any quota is configured."""
        self._forget_inactive_ms = 0
        self._update()

    def client(self, principal: str, client_id: str) -> LimitedClient | None:
        """Return the meters of a client; None if no quota applies to it.  `principal` is `Type:name`."""
        if not self.has_limits:
            return None
        try:
            return self._known_clients[principal, client_id]
        except KeyError:
            return self._find_client(principal, client_id)

    def find(self, found: FoundClient, principal: str, client_id: str) -> None:
        """As `client`, for the dispatcher, which keeps for each connection what it has found."""
        found.client = self.client(principal, client_id)
        found.client_id, found.version = client_id, self.version

    def connection_rate_of(self, ip: str) -> int | None:
        """Return the limit of connections per second for an IP address (KIP-612); None without a limit.

        `ip` is the text of an address, without Java's slash.
        """
        rate = self._connection_rates.get(ip)
        return self._connection_rates.get(None) if rate is None else rate

    async def replace(self, configs: Mapping[str, Mapping[str, str] | None]) -> None:
        """Set the configuration of all entities, by path below /config; limits of other entities are removed."""
        known = [await self._address(path) for path in configs]
        entities = set()
        for (path, config), address in zip(configs.items(), known, strict=True):
            self._apply(path, config, address)
            if not path.startswith("ips/"):
                with suppress(InvalidQuota):
                    entities.add(client_entity(path))
        for quota in self._quotas.values():
            quota.limits.keep(entities)
        addresses = {address for path, address in zip(configs, known, strict=True) if path.startswith("ips/")}
        for address in self._connection_rates.keys() - addresses:
            del self._connection_rates[address]
        self._update()

    async def change(self, path: str, config: Mapping[str, str] | None) -> None:
        """Set the configuration of one entity, such as `users/alice/clients/<default>`."""
        self._apply(path, config, await self._address(path))
        self._update()

    def readings(self) -> Mapping[str, Mapping[QuotaGroup, MeterReading]]:
        """Return the usage and throttling of the groups with a limit, by key of the quota, for metrics."""
        now_ms = self._clock.monotonic_ms()
        return {key: quota.meters.readings(now_ms) for key, quota in self._quotas.items()}

    async def _address(self, path: str) -> str | None:
        """Return the address of an entity `ips/NAME`, where NAME may be the name of a host; None for the default."""
        name = ip_name(path) if path.startswith("ips/") else None
        if name is None:
            return None
        try:
            return peer_address(name)
        except ValueError:
            address = await self._address_of(name)
            return name if address is None else address

    def _apply(self, path: str, config: Mapping[str, str] | None, address: str | None) -> None:
        """Apply the configuration of an entity.

        An invalid path or value is logged, and the previous limit stays, as it does if the configuration is None.
        """
        if config is None:
            return
        values, problems = quota_values(config)
        self._problems.report(path, *problems.values())
        if path.startswith("ips/"):
            if CONNECTION_CREATION_RATE in values:
                self._connection_rates[address] = int(values[CONNECTION_CREATION_RATE])
            elif CONNECTION_CREATION_RATE not in problems:
                self._connection_rates.pop(address, None)
            return
        try:
            entity = client_entity(path)
        except InvalidQuota as error:
            self._problems.report(path, str(error))
            return
        for key, quota in self._quotas.items():
            if key not in problems:
                quota.limits.set(entity, values.get(key))

    def _update(self) -> None:
        self._forget_known()
        self.has_limits = not all(quota.limits.is_empty for quota in self._quotas.values())

    def _find_client(self, principal: str, client_id: str) -> LimitedClient | None:
        now_ms = self._clock.monotonic_ms()
        self._make_room(now_ms)
        user = principal.partition(":")[2]
        client = LimitedClient(
            self._produce.meter(user, client_id, now_ms),
            self._fetch.meter(user, client_id, now_ms),
            self._request.meter(user, client_id, now_ms),
            self._mutation.meter(user, client_id, now_ms),
        )
        found = client if client.has_limit else None
        if len(principal) + len(client_id) <= QUOTA_NAME_CHARACTERS_MAX:
            if len(self._known_clients) >= QUOTA_CLIENTS_MAX:
                self._known_clients.clear()
            self._known_clients[principal, client_id] = found
        return found

    def _make_room(self, now_ms: int) -> None:
        """Remove the meters of groups without requests for an hour; if there are too many, some not in use."""
        meters = [quota.meters for quota in self._quotas.values()]
        forgotten = sum(meter.make_room() for meter in meters)
        if now_ms >= self._forget_inactive_ms:
            self._forget_inactive_ms = now_ms + _FORGET_EVERY_MS
            forgotten += sum(meter.forget_inactive(now_ms) for meter in meters)
        if forgotten:
            # Otherwise clients would continue to use meters that are no longer shared.
            self._forget_known()

    def _forget_known(self) -> None:
        self._known_clients.clear()
        self.version += 1
