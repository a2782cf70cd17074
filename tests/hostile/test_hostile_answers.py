"""Random and mutated responses: every command ends with a documented exit status, one line, and little memory."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from kctl.cli import main
from kctl.commands.frame.exit_status import MEANINGS
from kctl.model import TopicPartition
from kctl.protocol.apis.describe_groups import DescribedGroupMember
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.unit.admin.moving_cluster import MovingCluster
from tests.unit.client.fake_cluster import DROP, FakeGroup

PEAK_BYTES_MAX = 32 << 20
SEEDS = (1, 2, 100, 102, 117, 119, 122, 123)
LINES = [
    "topics list",
    "topics describe",
    "topics describe --under-min-isr-partitions",
    "topics create new --partitions 2",
    "topics alter orders --partitions 5 --set retention.ms=1",
    "topics delete orders --yes",
    "topics delete orders --dry-run",
    "cluster describe",
    "cluster health",
    "cluster log-dirs --replicas",
    "configs describe topic",
    "configs describe broker",
    "configs alter topic orders --set retention.ms=5",
    "configs diff topic orders payments",
    "plan --export",
    "consume orders",
    "topics offsets orders --time @0",
    "groups list",
    "groups describe --all",
    "groups delete billing --yes",
    "groups delete-offsets billing --topic orders --yes",
    "groups reset-offsets billing --all-topics --to-earliest --yes",
    "reassign list",
    "reassign execute orders:0=1,2 --throttle 1k",
    "reassign cancel --all",
    "elect --preferred",
    "transactions describe-producers orders",
    "transactions list",
    "transactions find-hanging --idle 0s",
]


class HostileCluster(MovingCluster):
    """Mutates each response except, mostly, that of ApiVersions, so that commands proceed further."""

    def __init__(self, seed: int) -> None:
        super().__init__(2)
        self.random = Random(seed)
        self.mutates = True

    def _respond(self, broker: int, frame: bytes) -> Any:
        try:
            response = super()._respond(broker, frame)
        except Exception:
            return DROP  # A client that received invalid data may send invalid requests.
        (key,) = struct.unpack_from(">h", frame)
        if response is DROP or not self.mutates or self.random.random() < (0.95 if key == 18 else 0.3):
            return response
        return mutated(self.random, bytes(response))


def mutated(random: Random, response: bytes) -> bytes:
    """Changes the size, the bytes, or both; mostly keeps the correlation id, so that the rest is decoded."""
    match random.randrange(6):
        case 0:
            return random.randbytes(random.randrange(1, 400)) + bytes(4)
        case 1:
            return struct.pack(">i", random.choice([-1, 0, 1, 2**28, 2**31 - 1])) + response[4:]
        case 2:
            body = random.randbytes(random.randrange(2_000))
            return struct.pack(">i", 4 + len(body)) + response[4:8] + body
        case _:
            altered = bytearray(response[8:])
            for _ in range(random.randrange(1, 6)):
                if altered:
                    position = random.randrange(len(altered))
                    altered[position] = random.choice([0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)])
            if random.randrange(4) == 0:
                del altered[random.randrange(len(altered) + 1) :]
            return struct.pack(">i", 4 + len(altered)) + response[4:8] + bytes(altered)


@pytest.fixture
def hostile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[HostileCluster]:
    with HostileCluster(request.param) as cluster:
        monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", cluster.bootstrap)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        cluster.place("orders", [0, 1], [1, 0])
        cluster.topics["orders"][0].append(build_batch([Record(0, 1_000, None, b"x" * 300)]))
        offsets = {TopicPartition("orders", 0): 0, TopicPartition("orders", 1): 0}
        member = DescribedGroupMember(
            member_id="m", client_id="c", client_host="/h", member_metadata=b"", member_assignment=b""
        )
        cluster.groups["billing"] = FakeGroup(offsets)
        cluster.groups["active"] = FakeGroup(offsets, [member])
        yield cluster


@pytest.mark.parametrize("hostile", SEEDS, indirect=True, ids=[f"seed-{seed}" for seed in SEEDS])
def test_commands_survive_a_hostile_cluster(hostile: HostileCluster, capfd: pytest.CaptureFixture[str]) -> None:
    for line in LINES:
        capfd.readouterr()
        tracemalloc.start()
        try:
            status = main([*line.split(), "--timeout", "600ms", "--format", "jsonl"])
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        output = capfd.readouterr().err
        errors = [text for text in output.splitlines() if text.startswith("kctl: ")]
        assert status in MEANINGS, line
        assert "internal error" not in output, f"{line}: {output}"
        assert "Traceback" not in output, f"{line}: {output}"
        assert "Task exception" not in output, f"{line}: {output}"
        assert len([text for text in errors if "warning" not in text]) <= 1, f"{line}: {output}"
        assert peak_bytes < PEAK_BYTES_MAX, line
