"""Loading of `__consumer_offsets`: records of all versions, damaged ones among them, against a plain reading of them.

Goal: what the loader makes of a partition is what its records say one by one, and a record that cannot be read takes
nothing else with it.  Method: random batches whose keys and values are cut, changed or invented now and then; the
reference decodes each with the message definitions and keeps the last word in a dictionary.
"""

from __future__ import annotations

import contextlib
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from kctl.errors import MalformedRequest
from kctl.model import TopicPartition
from kctl.protocol.codec import encode_versioned
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.records.internal.topics import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    UnknownKey,
    decode_group_metadata_value,
    decode_offset_commit_value,
    decode_offsets_key,
)
from kctl.records.salvage import cut_all
from kctl.server.coordination.groups.config import GroupConfig
from kctl.server.coordination.groups.newer_records import decode_key, decode_value
from kctl.server.coordination.groups.records import GroupPlayback
from kctl.server.coordination.replay import PartitionReplay
from tests.property.examples import examples

GROUPS = ("g", "another-group", "gruppe-ä")
TOPICS = ("t", "orders.eu", "t2")


def test_every_record_is_loaded_independently() -> None:
    @examples(300)
    @given(seed=st.integers(0, 2**32))
    def check(seed: int) -> None:
        chance = Random(seed)
        playback, reference = GroupPlayback(), Reference()
        replay = PartitionReplay(playback)
        offset = 0
        for _ in range(chance.randint(1, 12)):
            records = [some_record(chance) for _ in range(chance.randint(1, 8))]
            list(replay.steps(cut_all(build_batch(records, base_offset=offset))))
            for position, record in enumerate(records):
                reference.read(offset + position, record.key, record.value)
            offset += len(records)
        assert [(skip.offset, *skip.keys) for skip in replay.skipped] == reference.skipped
        loaded = list(filter(None, playback.groups(GroupConfig())))
        groups = {group.group_id: group for group in loaded}
        assert len(groups) == len(loaded), "each group once"
        found = {
            (group_id, tp): (value.offset, value.leader_epoch, value.metadata, value.commit_timestamp_ms)
            for group_id, group in groups.items()
            for tp, value in group.offsets.all().items()
        }
        assert found == reference.offsets
        assert {name: group.generation for name, group in groups.items() if group.generation} == reference.generations

    check()


class Reference:
    """The last readable record of each key."""

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, TopicPartition], tuple[int, int, str, int]] = {}
        self.generations: dict[str, int] = {}
        self.skipped: list[tuple[int, bytes | None]] = []

    def read(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        try:
            match decode_offsets_key(key or b""):
                case OffsetCommitKey() as at:
                    self._commit((at.group, TopicPartition(at.topic, at.partition)), value)
                case GroupMetadataKey() as at:
                    self._group(at.group, value)
                case UnknownKey() as unknown if unknown.version < 0:
                    self.skipped.append((offset, key))
                case UnknownKey():
                    self._newer_group(key or b"", value)
        except MalformedRequest:
            self.skipped.append((offset, key))

    def _newer_group(self, key: bytes, value: bytes | None) -> None:
        """Damage can make the key one of a consumer or share group, into which the group is converted."""
        newer = decode_key(key)
        if value is not None and newer is not None:
            decode_value(newer[1].type, value)
            self.generations.pop(newer[0], None)

    def _commit(self, at: tuple[str, TopicPartition], value: bytes | None) -> None:
        if value is None:
            self.offsets.pop(at, None)
        else:
            output = decode_offset_commit_value(value)
            self.offsets[at] = (output.offset, output.leader_epoch, output.metadata, output.commit_timestamp)

    def _group(self, group: str, value: bytes | None) -> None:
        if value is None:
            self.generations.pop(group, None)
        else:
            self.generations[group] = decode_group_metadata_value(value).generation


def some_record(chance: Random) -> Record:
    """Mostly commits; one in ten is damaged."""
    if chance.random() < 0.8:
        commit = OffsetCommitKey(
            group=chance.choice(GROUPS), topic=chance.choice(TOPICS), partition=chance.choice((0, 1, 256, -1))
        )
        key, value = encode_versioned(commit, chance.choice((0, 1, 1, 1))), some_commit(chance)
    else:
        key, value = encode_versioned(GroupMetadataKey(group=chance.choice(GROUPS)), 2), some_group(chance)
    if chance.random() < 0.05:
        key = damaged(key, chance)
    kept: bytes | None = damaged(value, chance) if chance.random() < 0.05 else value
    return Record(0, 1, key, None if chance.random() < 0.1 else kept)


def some_commit(chance: Random) -> bytes:
    value = OffsetCommitValue(
        offset=chance.randrange(1 << 40),
        leader_epoch=chance.choice((-1, 3)),
        metadata=chance.choice(("", "", "", "remember", "ä")),
        commit_timestamp=chance.randrange(1 << 40),
    )
    return encode_versioned(value, chance.choice((0, 1, 2, 3, 3, 3, 3, 3)))


def some_group(chance: Random) -> bytes:
    member = MemberMetadata(
        member_id="m", client_id="c", client_host="/h", session_timeout=10_000, subscription=b"", assignment=b""
    )
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=chance.randint(1, 99),
        protocol="range",
        leader="m",
        members=[member][: chance.randint(0, 1)],
    )
    return encode_versioned(value, chance.randint(0, 3))


def damaged(data: bytes, chance: Random) -> bytes:
    """Truncated, extended, with one byte changed, of an unknown version, or random bytes."""
    match chance.randrange(5):
        case 0:
            return data[: chance.randrange(len(data))]
        case 1:
            return data + b"more"
        case 2:
            changed = bytearray(data)
            with contextlib.suppress(IndexError):
                changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            return bytes(changed)
        case 3:
            return b"\x00\x63" + data[2:]
        case _:
            return chance.randbytes(chance.randrange(40))
