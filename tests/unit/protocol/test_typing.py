"""mypy checks message classes; it supports their decorator through PEP 681."""

from __future__ import annotations

import re
from pathlib import Path

from mypy import api

from tests.peers.cache import mypy_cache

PROGRAM = """\
from kctl.protocol.apis.consumer_group_describe import ConsumerGroupDescribeResponse
from kctl.protocol.apis.produce import ProduceRequest
from kctl.protocol.apis.fetch import FetchPartition, FetchTopic
from kctl.protocol.codec import decode

ProduceRequest(acks=1, timeout_ms=1, topic_data=[])
ProduceRequest(acks="all", timeout_ms=1, topic_data=[])  # E: arg-type
ProduceRequest(acks=1, topic_data=[])  # E: call-arg
ProduceRequest(None, 1, 1, [])  # E: call-arg
FetchTopic(topic="t", partitions=[1])  # E: list-item
FetchTopic(topic=None, partitions=[])  # E: arg-type
decode(ProduceRequest, b"", 0)[0].acks.bit_length()
decode(ProduceRequest, b"", 0)[0].transactional_id.upper()  # E: union-attr
member = decode(ConsumerGroupDescribeResponse, b"", 0)[0].groups[0].members[0]
member.assignment.topic_partitions[0].topic_name.upper()
member.assignment = None  # E: assignment
"""


def test_mypy_checks_the_use_of_messages(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    output, _, _ = api.run(["--strict", "--cache-dir", str(mypy_cache()), str(program)])
    found = re.findall(r"program\.py:(\d+): error: .*\[([a-z-]+)\]", output)
    expected = [
        (str(number), line.partition("# E: ")[2])
        for number, line in enumerate(PROGRAM.splitlines(), 1)
        if "# E: " in line
    ]
    assert found == expected, output
