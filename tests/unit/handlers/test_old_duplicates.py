"""A batch that is retried long after its leader changed: DUPLICATE_SEQUENCE_NUMBER, once it is committed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kctl.errors import ErrorCode
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.server.handlers.produce import ProduceHandler
from kctl.server.peers.metadata import MetadataCache
from kctl.server.requests.record_work import RecordWork
from kctl.testing.sim_loop import SimLoop, simulate
from tests.unit.handlers.disk import Disk
from tests.unit.handlers.world import context


def test_an_old_duplicate_is_acknowledged_as_one_when_it_is_committed(tmp_path: Path) -> None:
    async def main(loop: SimLoop) -> None:
        disk = Disk(loop, tmp_path, live=(0, 1))
        handler = ProduceHandler(disk.replicas, disk.purgatory, RecordWork(), disk.clock, MetadataCache())
        disk.lead("orders", replicas=(0, 1))
        unanswered = handler.handle(_request(0), context(9))
        partition = disk.lead("orders", replicas=(0, 1))
        later = [handler.handle(_request(sequence), context(9)) for sequence in range(1, 7)]
        again = handler.handle(_request(0), context(9))
        waiting = [unanswered, *later, again]
        assert all(isinstance(reply, asyncio.Future) and not reply.done() for reply in waiting)

        partition = disk.lead("orders", replicas=(0, 1), isr=(0,))
        assert partition.high_watermark == partition.log.log_end_offset == 7
        responses = [await reply for reply in waiting if isinstance(reply, asyncio.Future)]
        duplicate = int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        assert [_result(response) for response in responses] == [*((0, offset) for offset in range(7)), (duplicate, -1)]
        at_once = handler.handle(_request(0, acks=1), context(9))
        assert isinstance(at_once, ProduceResponse)
        assert _result(at_once) == (duplicate, -1)
        disk.close()

    simulate(main, seed=1)


def test_an_old_duplicate_that_is_not_committed_fails_with_the_reason(tmp_path: Path) -> None:
    async def main(loop: SimLoop) -> None:
        disk = Disk(loop, tmp_path, live=(0, 1))
        handler = ProduceHandler(disk.replicas, disk.purgatory, RecordWork(), disk.clock, MetadataCache())
        disk.lead("orders", replicas=(0, 1))
        for sequence in range(6):
            handler.handle(_request(sequence), context(9))
        disk.lead("orders", replicas=(0, 1))
        handler.handle(_request(6), context(9))
        again = handler.handle(_request(0), context(9))
        disk.lead("orders", leader=1, replicas=(0, 1))
        assert isinstance(again, asyncio.Future)
        assert _result(await again) == (int(ErrorCode.NOT_LEADER_OR_FOLLOWER), -1)
        disk.close()

    simulate(main, seed=1)


def _request(sequence: int, *, acks: int = -1) -> ProduceRequest:
    batch = build_batch([Record(0, 0, None, b"v")], producer_id=1, producer_epoch=0, base_sequence=sequence)
    data = [PartitionProduceData(index=0, records=memoryview(bytearray(batch)))]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name="orders", partition_data=data)])


def _result(response: ProduceResponse) -> tuple[int, int]:
    result = response.responses[0].partition_responses[0]
    return int(result.error_code), result.base_offset
