"""Reads, validates and replaces the overrides of configuration resources, where this broker may serve them.

Kafka: ZkAdminManager.getBrokerId and ConfigHelper.resourceNameToBrokerId.

Owner: event loop.
"""

from __future__ import annotations

from collections.abc import Mapping

from kctl.config.broker import BROKER_PROPERTIES
from kctl.config.definition import Property
from kctl.config.dynamic import ConfigView
from kctl.config.subjects.groups import CONFIGURED_PROTOCOLS, GROUP_PROPERTIES, check_group_overrides
from kctl.config.topic import TOPIC_PROPERTIES
from kctl.errors import ApiError, ErrorCode, NoNodeError
from kctl.limits import CONFIG_PROPERTIES_MAX, Subject, bound
from kctl.security import acls
from kctl.server.cluster.configs.alterations import DynamicPasswords, ResourceType, check_topic_overrides
from kctl.server.cluster.topics.writer import TopicWriter, invalid_znode_as_api_error
from kctl.server.peers.metadata import MetadataCache
from kctl.server.policies import ConfigAlteration, Policies
from kctl.server.requests.context import RequestContext
from kctl.server.znodes.large import decoded
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import WatchEvent, ZooKeeper

CONFIG_VALUE_BYTES_MAX = bound(
    Subject.CONFIGURATION,
    "value of one configuration property",
    32_767,
    "bytes",
    on_excess="INVALID_CONFIG for the resource",
)
CONFIG_BYTES_MAX = bound(
    Subject.CONFIGURATION,
    "all overrides of one topic or broker",
    500_000,
    "bytes",
    on_excess="INVALID_CONFIG for the resource",
)
KEPT_TOPIC_CONFIGS_MAX = bound(
    Subject.LONG_WORK,
    "topics whose overrides a broker keeps in memory, with a watch in ZooKeeper, for long DescribeConfigs requests",
    10_000,
    "topics",
    on_excess="those of the others are read from ZooKeeper for each request",
)
KEPT_TOPIC_CONFIG_BYTES_MAX = bound(
    Subject.LONG_WORK,
    "overrides of a topic that a broker keeps in memory for long DescribeConfigs requests",
    1 << 10,
    "bytes",
    on_excess="they are read from ZooKeeper for each request",
)


_BROKERS = "brokers/"


def check_access(context: RequestContext, operation: acls.Operation, kind: int, name: str) -> None:
    """Raise ApiError unless the operation is allowed on a topic, a group or, for a broker, on the cluster."""
    if kind == ResourceType.TOPIC:
        context.check(operation, acls.ResourceType.TOPIC, name)
    elif kind == ResourceType.GROUP:
        context.check(operation, acls.ResourceType.GROUP, name)
    elif kind in {ResourceType.BROKER, ResourceType.BROKER_LOGGER}:
        context.check(operation, acls.ResourceType.CLUSTER, acls.CLUSTER_NAME)


def check_this_broker(name: str, broker_id: int) -> None:
    """Raise ApiError(INVALID_REQUEST) for a name other than this broker's id."""
    try:
        named = int(name)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}") from None
    if named != broker_id:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {broker_id} or empty string, but received {name}",
        )


def _check_sizes(overrides: Mapping[str, str]) -> None:
    """Raise ApiError(INVALID_CONFIG) for overrides that are too large for a znode, or too many."""
    if len(overrides) > CONFIG_PROPERTIES_MAX:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"{len(overrides)} overrides are more than the {CONFIG_PROPERTIES_MAX} allowed."
        )
    for name, value in overrides.items():
        size = len(value.encode())
        if size > CONFIG_VALUE_BYTES_MAX:
            raise ApiError(
                ErrorCode.INVALID_CONFIG, f"{name} has {size} bytes, more than the {CONFIG_VALUE_BYTES_MAX} allowed."
            )
    total = len(znodes.encode_config(overrides))  # JSON has six bytes for a control character.
    if total > CONFIG_BYTES_MAX:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"The overrides have {total} bytes, more than the {CONFIG_BYTES_MAX} allowed."
        )


class ConfigResources:
    """The overrides of topics, of groups and of this broker."""

    def __init__(
        self,
        broker_id: int,
        configs: ConfigView,
        metadata: MetadataCache,
        topics: TopicWriter,
        policies: Policies,
    ) -> None:
        self._broker_id = broker_id
        self._policies = policies
        self._passwords = DynamicPasswords(configs.current)
        self._configs = configs
        self._metadata = metadata
        self._topics = topics
        self._protocols = configs.current.group_coordinator_rebalance_protocols

    def entity_path(self, resource_type: int, name: str) -> str:
        """Return the path of the overrides below /config.  Raises ApiError if they cannot be altered on this broker."""
        if resource_type == ResourceType.TOPIC:
            if not name:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
            if self._metadata.partitions(name) is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
            return f"topics/{name}"
        if resource_type == ResourceType.BROKER:
            if not name:
                return f"{_BROKERS}<default>"
            check_this_broker(name, self._broker_id)
            return f"{_BROKERS}{self._broker_id}"
        if resource_type == ResourceType.GROUP and CONFIGURED_PROTOCOLS.intersection(self._protocols):
            if not name:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
            return f"groups/{paths.sanitize(name)}"
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Only topics and brokers can be altered this way, but the resource type is {resource_type}",
        )

    async def check(
        self, resource_type: int, name: str, overrides: Mapping[str, str], requested: Mapping[str, str | None]
    ) -> None:
        """Raise ApiError for invalid overrides, and if the policy refuses what was requested."""
        _check_sizes(overrides)
        if resource_type == ResourceType.TOPIC:
            check_topic_overrides(overrides)
        elif resource_type == ResourceType.GROUP:
            check_group_overrides(overrides)
        else:
            await self._configs.validate(overrides, per_broker=bool(name))
        self._policies.check_alteration(ConfigAlteration(ResourceType(resource_type).name, name, requested))

    def properties(self, resource_type: int) -> Mapping[str, Property]:
        """Return the properties that this type of resource can have."""
        if resource_type == ResourceType.GROUP:
            return GROUP_PROPERTIES
        return TOPIC_PROPERTIES if resource_type == ResourceType.TOPIC else BROKER_PROPERTIES

    async def current(self, entity_path: str) -> dict[str, str]:
        """Return the overrides, with passwords decrypted.  Raises ZooKeeperError."""
        stored = await self._topics.config(entity_path)
        return self._passwords.decoded(stored)[0] if entity_path.startswith(_BROKERS) else stored

    async def replace(self, entity_path: str, overrides: Mapping[str, str]) -> None:
        """Store overrides, passwords encrypted, and notify all brokers.  Raises ApiError and ZooKeeperError."""
        stored = self._passwords.encoded(overrides) if entity_path.startswith(_BROKERS) else overrides
        await self._topics.change_config(entity_path, stored)


# The overrides of topics as ZooKeeper has them, each kept in memory until a watch reports a change.
#
# ZooKeeper delivers the event of a watch before any response that shows a later state, and `kctl.zookeeper.session`
# keeps this order. After the response to one read, an entry whose watch has not fired therefore equals what a read of
# its znode would have returned: it has every change that was complete when that read was sent.
#
# Owner: event loop.


_FOLDER = paths.topic_config("")


class WatchedConfigs:
    """Call `confirm` first, then `kept` for each topic, and `read` for those that are not."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._session_id = 0
        self._watched: dict[str, Mapping[str, str] | None] = {}
        """None for overrides that are not kept, because they are large or invalid."""
        self._reads: dict[str, object] = {}
        """A token for each topic whose watch is being set, until it fires."""

    def on_watch(self, event: WatchEvent) -> None:
        """Drop the overrides of a topic that were changed or deleted; other watches are ignored."""
        if event.path.startswith(_FOLDER):
            topic = event.path.removeprefix(_FOLDER)
            self._watched.pop(topic, None)
            self._reads.pop(topic, None)

    async def confirm(self) -> None:
        """Wait until changes that are complete have been dropped.  Raises ZooKeeperError."""
        await self._zookeeper.exists(paths.CONFIG)
        if self._session_id != self._zookeeper.session_id:  # The watches of an earlier session are lost.
            self._session_id = self._zookeeper.session_id
            self._watched.clear()
            self._reads.clear()

    def kept(self, topic: str) -> Mapping[str, str] | None:
        """Return the overrides that are in memory; None if they have to be read."""
        return self._watched.get(topic)

    async def read(self, topic: str) -> Mapping[str, str]:
        """Read the overrides; none if the topic has no znode.

        Raises ZooKeeperError, and ApiError if the znode is invalid.
        """
        # A second watch on the same znode would be one object more in the client of ZooKeeper for each request.
        has_watch = topic in self._watched or topic in self._reads
        sets_watch = not has_watch and len(self._watched) + len(self._reads) < KEPT_TOPIC_CONFIGS_MAX
        token = object()
        if sets_watch:
            self._reads[topic] = token
        path = paths.topic_config(topic)
        is_kept = False
        try:
            data, _ = await self._zookeeper.get(path, watch=sets_watch)
            if self._reads.get(topic) is token:
                self._watched[topic] = None
                is_kept = len(data) <= KEPT_TOPIC_CONFIG_BYTES_MAX
        except NoNodeError:  # Without a watch.
            return {}
        finally:
            if self._reads.get(topic) is token:
                del self._reads[topic]
        with invalid_znode_as_api_error():
            overrides = await decoded(znodes.decode_config, path, data)  # Small ones without a pause.
        if is_kept:
            self._watched[topic] = overrides
        return overrides
