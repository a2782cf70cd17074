"""Reading an offset range: filtered batches, retries and losses."""

from __future__ import annotations

from uuid import UUID

import pytest

from kctl.client.cluster import ClusterClient
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.consuming.positions import Position as History
from kctl.client.settings import ClientSettings
from kctl.errors import ApiError, ErrorCode
from kctl.model import ZERO_UUID
from kctl.records.batch import iterate_batches, iterate_records
from kctl.records.build import build_batch, rebuild_batch
from kctl.records.compression import Codec
from kctl.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from kctl.records.header import Record
from kctl.records.old_formats.legacy import build_messages
from kctl.tables.exec.outcome import CorruptRecords, DataLoss
from kctl.tables.exec.reading.fetch import METADATA_AGE_S, OffsetRange, RangeReader, TopicLeaders
from kctl.tables.exec.reading.histories import UNKNOWN_HISTORY
from tests.unit.spark.fake_broker import ORDERS, FakeBroker


def batch(base: int, count: int = 10, **more: object) -> bytes:
    records = [Record(0, 0, None, b"%d" % (base + index)) for index in range(count)]
    return build_batch(records, base_offset=base, **more)  # type: ignore[arg-type]


def transactional(base: int, producer_id: int) -> bytes:
    return batch(base, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)


def marker(base: int, producer_id: int, kind: ControlType) -> bytes:
    return build_end_transaction_marker(
        EndTransactionMarker(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp=0, base_offset=base
    )


def read(
    broker: FakeBroker,
    start: int = 0,
    end: int = 40,
    *,
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    may_skip: bool = False,
    topic_id: UUID | None = None,
    history: History = UNKNOWN_HISTORY,
) -> tuple[list[int], int]:
    """Base offsets of the batches that a reader got, and the missing offsets."""
    client = ClusterClient(ClientSettings((("fake", 9092),), timeout_ms=1000), broker)
    range_ = OffsetRange(ORDERS, broker.topic_id if topic_id is None else topic_id, start, end, isolation, history)
    with RangeReader(client, range_, may_skip=may_skip) as reader:
        batches = [header.base_offset for fetched in reader.responses() for header in fetched.batches]
        return batches, reader.lost


def test_readers_of_many_ranges_share_the_metadata_until_it_is_old_or_wrong() -> None:
    broker = FakeBroker(batch(0), batch(10), batch(20), batch(30))
    client = ClusterClient(ClientSettings((("fake", 9092),), timeout_ms=1000), broker)
    now_s = 0.0
    leaders = TopicLeaders(client, clock=lambda: now_s)

    def requests_of(start: int) -> int:
        before = broker.metadata_requests
        range_ = OffsetRange(ORDERS, broker.topic_id, start, start + 10, IsolationLevel.READ_COMMITTED)
        with RangeReader(client, range_, may_skip=False, leaders=leaders) as reader:
            assert [header.base_offset for fetched in reader.responses() for header in fetched.batches] == [start]
        return broker.metadata_requests - before

    assert requests_of(0) >= 1
    assert [requests_of(start) for start in (10, 20, 30)] == [0, 0, 0]
    now_s = METADATA_AGE_S + 1
    assert requests_of(0) == 1
    errors = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    broker.before_fetch = lambda offset: errors.pop() if errors else ErrorCode.NONE
    assert requests_of(10) == 1


def test_aborted_batches_are_reported_apart() -> None:
    broker = FakeBroker(transactional(0, 1), marker(10, 1, ControlType.ABORT), batch(11))
    broker.aborted = [(0, 1)]
    client = ClusterClient(ClientSettings((("fake", 9092),), timeout_ms=1000), broker)
    for isolation, expected in ((IsolationLevel.READ_COMMITTED, [0]), (IsolationLevel.READ_UNCOMMITTED, [])):
        with RangeReader(client, OffsetRange(ORDERS, broker.topic_id, 0, 21, isolation), may_skip=False) as reader:
            assert [
                transaction.base_offset for fetched in reader.responses() for transaction in fetched.aborted
            ] == expected


def four_batches() -> FakeBroker:
    return FakeBroker(batch(0), batch(10), batch(20), batch(30))


def test_all_batches_of_the_range_are_read_response_by_response() -> None:
    broker = four_batches()
    assert read(broker) == ([0, 10, 20, 30], 0)
    assert broker.fetches == [0, 10, 20, 30]


def test_one_response_may_contain_many_batches() -> None:
    broker = four_batches()
    broker.response_bytes = 1 << 20
    assert read(broker) == ([0, 10, 20, 30], 0)
    assert broker.fetches == [0]


def test_batches_that_overlap_the_range_are_read_whole_and_others_not() -> None:
    assert read(four_batches(), 15, 25) == ([10, 20], 0)
    assert read(four_batches(), 10, 20) == ([10], 0)


def test_a_range_that_ends_in_a_gap_ends_with_the_batch_after_the_gap() -> None:
    """Compaction has removed everything from 20 on."""
    assert read(FakeBroker(batch(0), batch(10), batch(50)), 0, 40) == ([0, 10], 0)


def test_a_batch_that_compaction_emptied_advances_the_position() -> None:
    (header,) = iterate_batches(batch(10))
    broker = FakeBroker(batch(0), rebuild_batch(header, []), batch(20))
    assert read(broker, 0, 30) == ([0, 10, 20], 0)


def test_markers_and_aborted_transactions_are_left_out() -> None:
    broker = FakeBroker(
        transactional(0, 1),
        transactional(10, 2),
        marker(20, 1, ControlType.ABORT),
        marker(21, 2, ControlType.COMMIT),
        transactional(22, 1),
        marker(32, 1, ControlType.COMMIT),
    )
    broker.response_bytes = 1 << 20
    broker.aborted = [(0, 1)]
    assert read(broker, 0, 33) == ([10, 22], 0)


def test_with_read_uncommitted_only_markers_are_left_out() -> None:
    broker = FakeBroker(transactional(0, 1), marker(10, 1, ControlType.ABORT), batch(11))
    assert read(broker, 0, 21, isolation=IsolationLevel.READ_UNCOMMITTED) == ([0, 11], 0)


def test_messages_of_old_formats_come_as_batches_of_the_new_one() -> None:
    """Also if a wrapper message extends beyond the end of the range: its offset is that of its last record."""
    old = [Record(offset, 5, None, b"%d" % offset) for offset in range(30)]
    broker = FakeBroker(
        build_messages(old[:10], magic=0, codec=Codec.LZ4),
        build_messages(old[10:20], magic=1, codec=Codec.GZIP),
        build_messages(old[20:23], magic=1),
        batch(23),
    )
    broker.response_bytes = 1 << 20
    assert read(broker, 0, 33) == ([0, 10, 20, 21, 22, 23], 0)
    assert read(broker, 5, 15) == ([0, 10], 0)


def test_a_moved_leader_is_looked_up_again() -> None:
    broker = four_batches()
    errors = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE]
    broker.before_fetch = lambda offset: errors.pop() if offset == 20 and errors else ErrorCode.NONE
    assert read(broker) == ([0, 10, 20, 30], 0)


def test_a_leader_that_never_comes_back_is_an_error_in_the_end() -> None:
    broker = four_batches()
    broker.before_fetch = lambda offset: ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(ApiError, match="orders-0"):
        read(broker)


def test_expired_offsets_are_a_loss() -> None:
    broker = four_batches()
    broker.log_start = 20
    with pytest.raises(DataLoss, match="orders-0: offsets 0 to 19 are gone, the log starts at 20 now"):
        read(broker)


def test_tolerated_losses_continue_at_the_log_start() -> None:
    broker = four_batches()
    broker.log_start = 20
    assert read(broker, may_skip=True) == ([20, 30], 20)


def test_a_range_that_expired_entirely_has_no_batches() -> None:
    broker = four_batches()
    broker.log_start = 20
    assert read(broker, 0, 15, may_skip=True) == ([], 15)


def test_a_log_that_was_truncated_is_a_loss_even_where_expired_offsets_are_not() -> None:
    with pytest.raises(DataLoss, match="truncated"):
        read(FakeBroker(batch(0)), 20, 40, may_skip=True)


def test_a_topic_created_anew_since_planning_is_a_loss() -> None:
    with pytest.raises(DataLoss, match="created again"):
        read(four_batches(), topic_id=UUID(int=9))
    assert read(four_batches(), topic_id=ZERO_UUID) == ([0, 10, 20, 30], 0)


def test_a_topic_deleted_since_planning_is_a_loss() -> None:
    broker = four_batches()
    broker.exists = False
    with pytest.raises(DataLoss, match="does not exist"):
        read(broker)


def test_a_log_that_was_truncated_inside_of_the_range_is_a_loss() -> None:
    """As after an unclean election.  A task that tolerates losses would otherwise fail for ever."""
    for may_skip in (False, True):
        with pytest.raises(DataLoss, match="orders-0 was truncated: it ends at offset 10, and had records up to 20"):
            read(FakeBroker(batch(0)), 0, 20, may_skip=may_skip)


def test_records_that_the_leader_does_not_return_although_it_has_them_are_an_error() -> None:
    broker = four_batches()
    broker.hidden_from = 10
    with pytest.raises(ApiError, match="gives no records at offset 10"):
        read(broker, 0, 20)


def test_damaged_batches_name_the_place() -> None:
    damaged = bytearray(batch(0) + batch(10))
    damaged[len(batch(0)) + 16] = 9
    with pytest.raises(CorruptRecords, match="orders-0 near offset 10: unknown magic 9"):
        read(FakeDamaged(bytes(damaged)))


class FakeDamaged(FakeBroker):
    """Returns the bytes unchanged."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = data

    def _fetch(self, offset: int, leader_epoch: int):  # type: ignore[no-untyped-def]
        response = super()._fetch(offset, leader_epoch)
        response.responses[0].partitions[0].error_code = 0
        response.responses[0].partitions[0].records = memoryview(self._data)
        return response


def test_the_batches_hold_the_records() -> None:
    client = ClusterClient(ClientSettings((("fake", 9092),)), four_batches())
    range_ = OffsetRange(ORDERS, UUID(int=1), 0, 40, IsolationLevel.READ_COMMITTED)
    with RangeReader(client, range_, may_skip=False) as reader:
        values = [
            record.value
            for fetched in reader.responses()
            for header in fetched.batches
            for record in iterate_records(fetched.data, header)
        ]
    assert values == [b"%d" % offset for offset in range(40)]


def elect(broker: FakeBroker, at: int, epoch: int, ends: dict[int, tuple[int, int]], *batches: bytes) -> None:
    """Before the fetch of this offset another leader takes over, whose log has these batches and epochs."""

    def before_fetch(offset: int) -> ErrorCode:
        if offset == at and broker.leader_epoch != epoch:
            broker.leader_epoch, broker.epoch_ends = epoch, ends
            broker.log = b"".join(batches)
        return ErrorCode.NONE

    broker.before_fetch = before_fetch


KNOWN = History(40, 0)
FIRST = tuple(batch(base, leader_epoch=0) for base in (0, 10, 20, 30))
OTHER = tuple(batch(base, leader_epoch=2) for base in (0, 10, 20, 30))


def test_reading_goes_on_after_an_election_only_if_the_leader_has_the_records_of_the_range() -> None:
    for history in (KNOWN, UNKNOWN_HISTORY):
        broker = FakeBroker(*FIRST)
        elect(broker, 20, 2, {0: (0, 40)}, *FIRST)
        assert read(broker, history=history) == ([0, 10, 20, 30], 0), history
        assert broker.fetches == [0, 10, 20, 20, 30], history
        for end in (0, 10):
            broker = FakeBroker(*FIRST)
            elect(broker, 20, 2, {0: (0, end)}, *OTHER)
            with pytest.raises(DataLoss, match=f"orders-0 was truncated at offset {end}, .* leader epoch 0"):
                read(broker, history=history)


def test_records_up_to_the_truncation_are_read_where_losses_are_tolerated() -> None:
    broker = FakeBroker(*FIRST)
    elect(broker, 10, 2, {0: (0, 30)}, *OTHER)
    found: list[int] = []
    client = ClusterClient(ClientSettings((("fake", 9092),), timeout_ms=1000), broker)
    range_ = OffsetRange(ORDERS, broker.topic_id, 0, 40, IsolationLevel.READ_COMMITTED, KNOWN)
    with RangeReader(client, range_, may_skip=True) as reader:
        responses = reader.responses()
        found += [header.base_offset for _ in range(3) for header in next(responses).batches]
        with pytest.raises(DataLoss, match="truncated at offset 30"):
            next(responses)
    assert (found, reader.position) == ([0, 10, 20], 30)


def test_a_range_is_read_though_the_log_was_truncated_after_it() -> None:
    broker = FakeBroker(*FIRST)
    elect(broker, 10, 2, {0: (0, 20)}, *OTHER)
    assert read(broker, end=20, history=KNOWN) == ([0, 10], 0)


def test_a_log_without_any_epochs_is_not_compared() -> None:
    """Its messages have a format before 2."""
    broker = FakeBroker(*FIRST)
    elect(broker, 10, 2, {2: (-1, -1)}, *FIRST)
    assert read(broker, history=KNOWN) == ([0, 10, 20, 30], 0)
