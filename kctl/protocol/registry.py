"""The APIs that this suite speaks: keys, names, versions, and where their messages are defined.

Our broker serves those of a Kafka 2.8 broker with ZooKeeper, and 65 and 66 from 3.0.  Our client knows some newer ones,
for the groups of Kafka 4.  The table repeats what the definitions say, so that listing all APIs imports none of them; a
test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import cast

from kctl.protocol.message import definition_of


@dataclass(frozen=True)
class Api:
    """One API; its messages are imported when asked for."""

    key: int
    name: str
    """As in file names: snake case."""
    versions: range
    first_flexible: int | None
    served: range
    """The versions that our broker serves; none of an API that only our client knows."""

    @cached_property
    def request(self) -> type:
        """The class of its requests."""
        return self._message("Request")

    @cached_property
    def response(self) -> type:
        """The class of its responses."""
        return self._message("Response")

    @property
    def kafka_name(self) -> str:
        """The name in Kafka's documentation: camel case."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def version_max(self) -> int:
        """The newest version."""
        return self.versions[-1]

    def is_flexible(self, version: int) -> bool:
        """Whether this version, known or newer, has compact lengths and tagged fields (KIP-482)."""
        return self.first_flexible is not None and version >= self.first_flexible

    def _message(self, kind: str) -> type:
        module = import_module(f"kctl.protocol.apis.{self.name}")
        return cast("type", getattr(module, self.kafka_name + kind))


def _api(key: int, name: str, version_max: int, first_flexible: int | None, *, served_max: int | None = None) -> Api:
    served = range((version_max if served_max is None else served_max) + 1)
    return Api(key, name, range(version_max + 1), first_flexible, served)


APIS: dict[int, Api] = {
    entry.key: entry
    for entry in (
        _api(0, "produce", 9, 9),
        _api(1, "fetch", 12, 12),
        _api(2, "list_offsets", 6, 6),
        _api(3, "metadata", 11, 9),
        _api(4, "leader_and_isr", 5, 4),
        _api(5, "stop_replica", 3, 2),
        _api(6, "update_metadata", 7, 6),
        _api(7, "controlled_shutdown", 3, 3),
        _api(8, "offset_commit", 8, 8),
        _api(9, "offset_fetch", 7, 6),
        _api(10, "find_coordinator", 3, 3),
        _api(11, "join_group", 7, 6),
        _api(12, "heartbeat", 4, 4),
        _api(13, "leave_group", 4, 4),
        _api(14, "sync_group", 5, 4),
        _api(15, "describe_groups", 6, 5, served_max=5),
        _api(16, "list_groups", 5, 3, served_max=4),
        _api(17, "sasl_handshake", 1, None),
        _api(18, "api_versions", 3, 3),
        _api(19, "create_topics", 7, 5),
        _api(20, "delete_topics", 6, 4),
        _api(21, "delete_records", 2, 2),
        _api(22, "init_producer_id", 4, 2),
        _api(23, "offset_for_leader_epoch", 4, 4),
        _api(24, "add_partitions_to_txn", 3, 3),
        _api(25, "add_offsets_to_txn", 3, 3),
        _api(26, "end_txn", 3, 3),
        _api(27, "write_txn_markers", 1, 1),
        _api(28, "txn_offset_commit", 3, 3),
        _api(29, "describe_acls", 2, 2),
        _api(30, "create_acls", 2, 2),
        _api(31, "delete_acls", 2, 2),
        _api(32, "describe_configs", 4, 4),
        _api(33, "alter_configs", 2, 2),
        _api(34, "alter_replica_log_dirs", 2, 2),
        _api(35, "describe_log_dirs", 2, 2),
        _api(36, "sasl_authenticate", 2, 2),
        _api(37, "create_partitions", 3, 2),
        _api(38, "create_delegation_token", 2, 2),
        _api(39, "renew_delegation_token", 2, 2),
        _api(40, "expire_delegation_token", 2, 2),
        _api(41, "describe_delegation_token", 2, 2),
        _api(42, "delete_groups", 2, 2),
        _api(43, "elect_leaders", 2, 2),
        _api(44, "incremental_alter_configs", 1, 1),
        _api(45, "alter_partition_reassignments", 0, 0),
        _api(46, "list_partition_reassignments", 0, 0),
        _api(47, "offset_delete", 0, None),
        _api(48, "describe_client_quotas", 1, 1),
        _api(49, "alter_client_quotas", 1, 1),
        _api(50, "describe_user_scram_credentials", 0, 0),
        _api(51, "alter_user_scram_credentials", 0, 0),
        _api(56, "alter_partition", 0, 0),
        _api(57, "update_features", 0, 0),
        _api(60, "describe_cluster", 0, 0),
        _api(61, "describe_producers", 0, 0),
        _api(65, "describe_transactions", 0, 0),
        _api(66, "list_transactions", 0, 0),
        _api(69, "consumer_group_describe", 1, 0, served_max=-1),
    )
}
"""By key."""

_BY_NAME = {entry.name: entry for entry in APIS.values()}


def api(key: int) -> Api | None:
    """The API with this key, None when unknown."""
    return APIS.get(key)


def api_named(name: str) -> Api:
    """The API with this name in snake case; KeyError when unknown."""
    return _BY_NAME[name]


def api_of(message_class: type) -> Api:
    """The API that a request or response class belongs to; KeyError for other classes."""
    key = definition_of(message_class).key
    if key is None:
        raise KeyError(message_class.__name__)
    return APIS[key]
