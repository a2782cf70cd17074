"""Loading of the transaction coordinator: skipped records, and large partitions."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.records.internal.topics import encode_transaction_key
from kctl.server.coordination.transactions.events import TransactionSnapshot, TransactionState
from kctl.server.coordination.transactions.records import transaction_record
from kctl.server.coordination.transactions.runner import IDS_PER_TURN
from kctl.testing.sim_loop import SimLoop, simulate
from tests.unit.groups.hosting import MemoryOffsetsLog
from tests.unit.transactions.hosting import Host

PARTITIONS = 1
T0 = TopicPartition("t", 0)


def snapshot(state: TransactionState = TransactionState.ONGOING) -> TransactionSnapshot:
    return TransactionSnapshot(
        producer=ProducerIdAndEpoch(5, 3),
        timeout_ms=60_000,
        state=state,
        partitions=(T0,),
        last_update_ms=1,
        start_ms=1_600_000_000_000,
    )


KEY = encode_transaction_key("broken")
SOUND = transaction_record("broken", snapshot(), 1).value or b""
STATUS = 16
"""The position of the state in a value."""


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, SOUND),
        (b"", SOUND),
        (b"\xff\xff" + KEY[2:], SOUND),
        (KEY[:-1], SOUND),
        (KEY.replace(b"broken", b"br\xffken"), SOUND),
        (KEY, b""),
        (KEY, SOUND[:-1]),
        (KEY, b"\x00\x63" + SOUND[2:]),
        (KEY, b"\xff" * len(SOUND)),
        (KEY, SOUND[:STATUS] + b"\x63" + SOUND[STATUS + 1 :]),
    ],
    ids=[
        *("no key", "empty key", "version below 0", "cut key", "id that is not text", "empty value", "cut value"),
        *("unknown value version", "garbage", "unknown state"),
    ],
)
def test_unreadable_record_is_skipped_with_one_log_line_and_the_rest_loads(
    key: bytes | None, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(loop: SimLoop) -> None:
        sound = [transaction_record(name, snapshot(), 1) for name in ("before", "after")]
        host = await Host(loop, log_with([sound[0], Record(0, 1, key, value), sound[1]])).start()
        assert {transaction.transactional_id for transaction in (await host.coordinator.transactions())[2]} == {
            "before",
            "after",
        }
        assert host.coordinator.describe("after")[1] == snapshot()
        await host.coordinator.stop()

    with caplog.at_level(logging.WARNING):
        simulate(main, seed=1)
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"topic=__transaction_state partition=0 offset=1 last_offset=1 keys={key!r} " in line


def test_loading_many_ids_is_split_over_loop_turns_and_completes_prepared_ones() -> None:
    """Requests for ids of other partitions are served between the slices."""

    async def main(loop: SimLoop) -> None:
        count = 3 * IDS_PER_TURN
        decided = transaction_record("decided", snapshot(TransactionState.PREPARE_COMMIT), 1)
        many = [transaction_record(f"id-{number}", snapshot(), 1) for number in range(count)]
        host = Host(loop, log_with([*many, decided]))
        host.coordinator.start()
        host.coordinator.partitions.on_leader(0, 0)
        seen = []
        for _ in range(100):
            seen.append(len((await host.coordinator.transactions())[2]))
            if seen[-1]:
                break
            await asyncio.sleep(0)
        assert len(seen) > 3
        assert set(seen) == {0, count + 1}
        await asyncio.sleep(1)
        assert host.state("decided") == "CompleteCommit"
        assert host.partitions.marked == [T0]
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_key_types_of_newer_brokers_are_skipped_without_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    """KIP-915: a newer broker wrote them."""

    async def main(loop: SimLoop) -> None:
        sound = transaction_record("sound", snapshot(), 1)
        host = await Host(loop, log_with([Record(0, 1, b"\x00\x63" + KEY[2:], b"?"), sound])).start()
        assert [transaction.transactional_id for transaction in (await host.coordinator.transactions())[2]] == ["sound"]
        await host.coordinator.stop()

    with caplog.at_level(logging.WARNING):
        simulate(main, seed=1)
    assert caplog.records == []


def test_batch_with_a_wrong_checksum_is_skipped_with_one_log_line_and_the_rest_loads(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(loop: SimLoop) -> None:
        log = log_with([transaction_record("before", snapshot(), 1)])
        for name in ("broken", "after"):
            log.append(0, build_batch([transaction_record(name, snapshot(), 1)]), required_acks=-1, timeout_ms=0)
        log.batches[0][1] = log.batches[0][1].replace(b"broken", b"brokeN")
        host = await Host(loop, log).start()
        assert {transaction.transactional_id for transaction in (await host.coordinator.transactions())[2]} == {
            "before",
            "after",
        }
        await host.coordinator.stop()

    with caplog.at_level(logging.WARNING):
        simulate(main, seed=1)
    (line,) = [record.getMessage() for record in caplog.records]
    key = encode_transaction_key("brokeN")
    assert line.startswith(
        "skipping records that cannot be read topic=__transaction_state partition=0 offset=1 last_offset=1 "
        f"keys={key!r} error=wrong checksum, "
    )


def log_with(records: list[Record]) -> MemoryOffsetsLog:
    log = MemoryOffsetsLog(PARTITIONS)
    log.append(0, build_batch(records), required_acks=-1, timeout_ms=0)
    return log
