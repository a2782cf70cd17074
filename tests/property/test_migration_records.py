"""Values of internal topics that 4.x writes keep their meaning when they are rewritten for older brokers."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kctl.migration.reverting.internal_topics import SINCE_0_11, Rewritten, rewrite_segment
from kctl.model import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, ZERO_UUID
from kctl.protocol.codec import encode_versioned, version_of
from kctl.records.batch import iterate_batches, iterate_records
from kctl.records.build import build_batch
from kctl.records.compression import Codec
from kctl.records.header import Record
from kctl.records.internal.topics import (
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
    PartitionsSchema,
    TransactionLogValue,
    decode_group_metadata_value,
    decode_offset_commit_value,
    decode_transaction_value,
    encode_group_metadata_key,
    encode_offset_commit_key,
    encode_transaction_key,
)
from tests.property.examples import examples

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT16 = st.integers(-(1 << 15), (1 << 15) - 1)
TEXT = st.text(max_size=10)
OFFSETS = st.builds(
    OffsetCommitValue,
    offset=INT64,
    leader_epoch=INT32,
    metadata=TEXT,
    commit_timestamp=INT64,
    topic_id=st.builds(UUID, int=st.integers(0, (1 << 128) - 1)),
)
MEMBERS = st.builds(
    MemberMetadata,
    member_id=TEXT,
    group_instance_id=st.none() | TEXT,
    client_id=TEXT,
    client_host=TEXT,
    rebalance_timeout=INT32,
    session_timeout=INT32,
    subscription=st.binary(max_size=10),
    assignment=st.binary(max_size=10),
)
GROUPS = st.builds(
    GroupMetadataValue,
    protocol_type=TEXT,
    generation=INT32,
    protocol=st.none() | TEXT,
    leader=st.none() | TEXT,
    current_state_timestamp=INT64,
    members=st.lists(MEMBERS, max_size=3),
)
TRANSACTIONS = st.builds(
    TransactionLogValue,
    producer_id=INT64,
    producer_epoch=INT16,
    transaction_timeout_ms=INT32,
    transaction_status=st.integers(0, 7),
    transaction_partitions=st.none()
    | st.lists(st.builds(PartitionsSchema, topic=TEXT, partition_ids=st.lists(INT32, max_size=3)), max_size=3),
    transaction_last_update_timestamp_ms=INT64,
    transaction_start_timestamp_ms=INT64,
    client_transaction_version=st.integers(0, 2),
)


def _rewritten(topic: str, records: list[Record], codec: Codec) -> list[Record]:
    """What is in the segment afterwards; checks what must not change."""
    segment = build_batch(records, base_offset=5, leader_epoch=7, codec=codec, producer_id=3, producer_epoch=1)
    done = rewrite_segment(topic, segment, Rewritten("x"))
    assert rewrite_segment(topic, done, again := Rewritten("x")) == done
    assert again.records == 0
    oldest = rewrite_segment(topic, segment, Rewritten("x"), SINCE_0_11)
    assert rewrite_segment(topic, oldest, again, SINCE_0_11) == oldest
    assert again.records == 0
    view = memoryview(done)
    (header,) = iterate_batches(view)
    (before,) = iterate_batches(memoryview(segment))
    for name in ("base_offset", "last_offset", "leader_epoch", "attributes", "max_timestamp", "record_count"):
        assert getattr(header, name) == getattr(before, name)
    after = list(iterate_records(view, header))
    assert [(record.offset, record.timestamp, record.key, record.headers) for record in after] == [
        (5 + number, record.timestamp, record.key, record.headers) for number, record in enumerate(records)
    ]
    return after


CODECS = st.sampled_from(list(Codec))


@examples(100)
@given(st.lists(st.tuples(OFFSETS, st.sampled_from((0, 1, 2, 3, 4))), min_size=1, max_size=4), CODECS)
def test_offsets(values: list[tuple[OffsetCommitValue, int]], codec: Codec) -> None:
    key = encode_offset_commit_key("g", "t", 0)
    records = [Record(0, 9, key, encode_versioned(value, version)) for value, version in values]
    for (value, version), record in zip(values, _rewritten(GROUP_METADATA_TOPIC, records, codec), strict=True):
        assert version_of(record.value or b"") == min(version, 3)
        if version == 4:
            assert decode_offset_commit_value(record.value or b"") == replace(value, topic_id=ZERO_UUID)


@examples(100)
@given(GROUPS, CODECS)
def test_groups(value: GroupMetadataValue, codec: Codec) -> None:
    (record,) = _rewritten(
        GROUP_METADATA_TOPIC, [Record(0, 9, encode_group_metadata_key("g"), encode_versioned(value, 4))], codec
    )
    assert version_of(record.value or b"") == 3
    assert decode_group_metadata_value(record.value or b"") == value


@examples(100)
@given(TRANSACTIONS, CODECS)
def test_transactions(value: TransactionLogValue, codec: Codec) -> None:
    (record,) = _rewritten(
        TRANSACTION_STATE_TOPIC, [Record(0, 9, encode_transaction_key("t"), encode_versioned(value, 1))], codec
    )
    assert version_of(record.value or b"") == 0
    assert decode_transaction_value(record.value or b"") == replace(value, client_transaction_version=0)
