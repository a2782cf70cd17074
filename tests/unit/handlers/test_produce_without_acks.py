"""Produce with acks=0: no response, and a separate exception if records could not be appended."""

from __future__ import annotations

from pathlib import Path

import pytest

from kctl.errors import UnansweredRequestFailed
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.server.handlers.produce import ProduceHandler
from kctl.server.peers.metadata import MetadataCache
from kctl.server.requests.record_work import RecordWork
from kctl.testing.sim_loop import SimLoop, simulate
from tests.unit.handlers.disk import Disk
from tests.unit.handlers.world import context


def test_an_append_has_no_response_and_a_failed_one_names_partition_and_error(tmp_path: Path) -> None:
    async def main(loop: SimLoop) -> None:
        disk = Disk(loop, tmp_path)
        handler = ProduceHandler(disk.replicas, disk.purgatory, RecordWork(), disk.clock, MetadataCache())
        partition = disk.lead("here")

        def request(topic: str) -> ProduceRequest:
            records = memoryview(bytearray(build_batch([Record(0, 0, b"key", b"value", ())])))
            data = [PartitionProduceData(index=0, records=records)]
            return ProduceRequest(
                acks=0, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
            )

        assert handler.handle(request("here"), context(9)) is None
        assert partition.log.log_end_offset == 1
        with pytest.raises(UnansweredRequestFailed, match="elsewhere-0: UNKNOWN_TOPIC_OR_PARTITION"):
            handler.handle(request("elsewhere"), context(9))
        disk.close()

    simulate(main, seed=1)
