"""The properties of a group (resources of type GROUP), which override those of the broker.

Kafka: GroupConfig (4.3).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from kctl.config.broker import BrokerConfig
from kctl.config.definition import Property, Rule, in_range, one_of, prop, properties_of
from kctl.config.kinds import BOOLEAN, INT, STRING
from kctl.errors import ApiError, ErrorCode

_BY_DURATION = "by_duration:"
_DURATION = re.compile(
    r"P(?:(?P<d>\d+)D)?(?:T(?=\d)(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+)(?:\.(?P<f>\d{1,9}))?S)?)?\Z"
)
_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}


def duration_ms(offset_reset: str) -> int | None:
    """Return the duration of by_duration:PnDTnHnMn.nS in ms; None for another text."""
    match = _DURATION.match(offset_reset.removeprefix(_BY_DURATION))
    if not offset_reset.startswith(_BY_DURATION) or match is None or not any(match.groups()):
        return None
    milliseconds = sum(int(match[unit]) * size for unit, size in _MS.items() if match[unit])
    return milliseconds + int((match["f"] or "").ljust(3, "0")[:3])


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Every property of a group with the value in force.  The defaults are those of an unconfigured broker."""

    share_session_timeout_ms: int = prop(
        "share.session.timeout.ms",
        INT,
        in_range(1, 3600000),
        default=45000,
        server="group.share.session.timeout.ms",
        doc="Time after which a member of the share group without heartbeats is removed.",
    )
    share_heartbeat_interval_ms: int = prop(
        "share.heartbeat.interval.ms",
        INT,
        in_range(1, 3600000),
        default=5000,
        server="group.share.heartbeat.interval.ms",
        doc="Interval of the heartbeats of members of the share group.",
    )
    share_record_lock_duration_ms: int = prop(
        "share.record.lock.duration.ms",
        INT,
        in_range(1000, 3600000),
        default=30000,
        server="group.share.record.lock.duration.ms",
        doc="Time that a member of the share group has to acknowledge a record.",
    )
    share_delivery_count_limit: int = prop(
        "share.delivery.count.limit",
        INT,
        in_range(2, 10),
        default=5,
        server="group.share.delivery.count.limit",
        doc="How often a record is handed out to members of the share group before it is archived.",
    )
    share_partition_max_record_locks: int = prop(
        "share.partition.max.record.locks",
        INT,
        in_range(100, 10000),
        default=2000,
        server="group.share.partition.max.record.locks",
        doc="Maximum number of records of a partition that members of the share group have at a time.",
    )
    share_auto_offset_reset: str = prop(
        "share.auto.offset.reset",
        STRING,
        Rule(
            "earliest, latest or by_duration:DURATION, such as by_duration:PT1H",
            lambda text: text in {"earliest", "latest"} or duration_ms(text) is not None,
        ),
        default="latest",
        doc="Where a share group begins with a partition that it has not read yet.",
    )
    share_isolation_level: str = prop(
        "share.isolation.level",
        STRING,
        one_of("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        doc="Whether members of the share group get records of open and aborted transactions.",
    )
    share_renew_acknowledge_enable: bool = prop(
        "share.renew.acknowledge.enable",
        BOOLEAN,
        default=True,
        doc="Whether members of the share group may renew the locks of records (KIP-1222).",
    )


GROUP_PROPERTIES: Mapping[str, Property] = properties_of(GroupConfig)


def check_group_overrides(overrides: Mapping[str, str]) -> None:
    """Raise ApiError(INVALID_CONFIG) for an unknown name or an invalid value."""
    for name, text in overrides.items():
        described = GROUP_PROPERTIES.get(name)
        if described is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
        try:
            described.parse(text)
        except ValueError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Invalid value {text} for {name}: it {error}") from None


def group_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> tuple[GroupConfig, list[str]]:
    """Return the values in force for a group with these stored overrides, and the problems of those to ignore."""
    values = {}
    for entry in fields(GroupConfig):
        described: Property = entry.metadata["property"]
        if described.server is not None:
            values[described.attribute] = getattr(broker, described.server.replace(".", "_"))
    problems = []
    for name, text in overrides.items():
        known = GROUP_PROPERTIES.get(name)
        try:
            if known is None:
                raise ValueError("is unknown")
            values[known.attribute] = known.parse(text)
        except ValueError as error:
            problems.append(f"{name}={text}: it {error}")
    return replace(GroupConfig(), **values), problems
