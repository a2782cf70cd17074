"""Control records of KRaft's metadata log and its snapshots.  KIP-595, KIP-630, KIP-853.

The type is the second number of a control record's key.  Kafka: ControlRecordType and ControlRecordUtils (4.3), which
read all of them in version 0.
"""

from __future__ import annotations

import struct as binary
from typing import Any
from uuid import UUID

from kctl.errors import MalformedRequest
from kctl.protocol.codec import decode
from kctl.protocol.definition import definition_of
from kctl.protocol.message import array, data, int16, int32, int64, nested, string, struct, uint16, uuid
from kctl.records.header import Record

_KEY = binary.Struct(">hh")
_NO_DIRECTORY = UUID(int=0)


@struct
class LeaderChangeVoter:
    """A member of the quorum."""

    voter_id: int = int32()
    voter_directory_id: UUID = uuid("1+", default=_NO_DIRECTORY, ignorable=True)


@data(versions="0-1", flexible="0+")
class LeaderChangeMessage:
    """A new leader was elected."""

    version: int = int16()
    leader_id: int = int32()
    voters: list[LeaderChangeVoter] = array(LeaderChangeVoter)
    granting_voters: list[LeaderChangeVoter] = array(LeaderChangeVoter)


@data(versions="0", flexible="0+")
class SnapshotHeaderRecord:
    """The start of a snapshot."""

    version: int = int16()
    last_contained_log_timestamp: int = int64()


@data(versions="0", flexible="0+")
class SnapshotFooterRecord:
    """The end of a snapshot."""

    version: int = int16()


@data(versions="0", flexible="0+")
class KRaftVersionRecord:
    """The version of the quorum's protocol (KIP-853)."""

    version: int = int16()
    k_raft_version: int = int16()


@struct
class VoterEndpoint:
    """An endpoint of a voter."""

    name: str = string()
    host: str = string()
    port: int = uint16()


@struct
class KRaftVersionFeature:
    """The versions of the quorum's protocol that a voter supports."""

    min_supported_version: int = int16()
    max_supported_version: int = int16()


@struct
class Voter:
    """A member of the quorum and its endpoints."""

    voter_id: int = int32()
    voter_directory_id: UUID = uuid()
    endpoints: list[VoterEndpoint] = array(VoterEndpoint)
    k_raft_version_feature: KRaftVersionFeature = nested(KRaftVersionFeature)


@data(versions="0", flexible="0+")
class VotersRecord:
    """The members of the quorum."""

    version: int = int16()
    voters: list[Voter] = array(Voter)


TYPES: dict[int, tuple[str, type]] = {
    2: ("LeaderChange", LeaderChangeMessage),
    3: ("SnapshotHeader", SnapshotHeaderRecord),
    4: ("SnapshotFooter", SnapshotFooterRecord),
    5: ("KRaftVersion", KRaftVersionRecord),
    6: ("KRaftVoters", VotersRecord),
}
"""Names as in Kafka's tools and classes, by the type in the key."""


def decode_quorum_control(record: Record) -> tuple[str, Any] | None:
    """Return (name, message) of a control record; None for end transaction markers and unknown types.

    Raises MalformedRequest.
    """
    key = record.key or b""
    found = TYPES.get(_KEY.unpack_from(key)[1]) if len(key) >= _KEY.size else None
    if found is None:
        return None
    name, cls = found
    message: Any
    message, _ = decode(cls, record.value or b"", 0)
    if message.version not in definition_of(cls).versions:
        raise MalformedRequest(f"{name} has version {message.version}")
    return name, message
