"""What outsiders write to ZooKeeper and to log directories neither stops a broker nor is a failure in its log."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError

from kctl.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kctl.protocol.apis.metadata import MetadataRequest, MetadataResponse
from tests.hostile.fuzzing import unexpected_lines
from tests.hostile.raw_client import Attacker, wait_until
from tests.peers.kctl_broker import kctl_broker

SEED = random.SystemRandom().randrange(1 << 31)
ODD = (
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b"[" * 5_000,
    b'{"version": 9}',
    b'{"version":1,"partitions":{"0":["x"]}}',
    b'{"version":1,"partitions":{"-1":[0]}}',
    b'{"version":1,"partitions":{"0":[]}}',
    b'{"version":1,"partitions":[]}',
    b'{"version":1,"config":{"retention.ms":5}}',
    b'{"version":2,"entity_path":"../../x"}',
    b'{"version":1,"brokers":[{"id":1}]}',
    b'{"version":1,"partitions":[{"topic":"x","partition":0,"replicas":[-1]}]}',
)
PLACES = (
    "/brokers/topics/odd-%d",
    "/brokers/topics/odd-%d/partitions/0/state",
    "/brokers/topics/..odd%d",
    "/brokers/ids/10%d",
    "/brokers/ids/odd-%d",
    "/config/topics/odd-%d",
    "/config/users/odd-%d",
    "/config/clients/odd-%d",
    "/config/changes/config_change_%010d",
    "/config/changes/odd-%d",
    "/admin/delete_topics/odd-%d",
    "/isr_change_notification/isr_change_%010d",
    "/log_dir_event_notification/log_dir_event_%010d",
)
SINGLE = (
    "/admin/reassign_partitions",
    "/admin/preferred_replica_election",
    "/brokers/seqid",
    "/feature",
    "/config/brokers/<default>",
)


def write(client: KazooClient, path: str, data: bytes) -> None:
    """Creates a znode, or replaces its data, unless the broker deletes it meanwhile."""
    try:
        client.create(path, data, makepath=True)
    except NodeExistsError:
        with contextlib.suppress(NoNodeError):
            client.set(path, data)


def create(attacker: Attacker, name: str) -> int:
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
    return attacker.call(request, CreateTopicsResponse, 5).topics[0].error_code


def test_odd_znodes_stop_neither_a_running_nor_a_starting_broker(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    with kctl_broker(tmp_path / "data") as broker:
        zookeeper = json.loads((broker.data_dir / "broker.json").read_text())["zookeeper"]
        client = KazooClient(zookeeper)
        client.start(60)
        for number in range(5):
            for place in PLACES:
                write(client, place % number, chance.choice(ODD))
        for place in SINGLE:
            write(client, place, chance.choice(ODD))
        client.stop()
        client.close()
        with Attacker(broker.bootstrap) as attacker:
            assert create(attacker, "before") == 0, f"seed {SEED}"
        broker.restart()
        with Attacker(broker.bootstrap) as attacker:
            wait_until(
                lambda: (
                    "before"
                    in {each.name for each in attacker.call(MetadataRequest(topics=None), MetadataResponse, 5).topics}
                ),
                "the metadata after the restart",
            )
            assert create(attacker, "after") == 0, f"seed {SEED}"
        assert "Traceback" not in broker.log_text, f"seed {SEED}"


@pytest.mark.parametrize("is_clean", [False, True])
def test_odd_names_and_garbage_in_a_log_directory_do_not_stop_a_start(tmp_path: Path, is_clean: bool) -> None:
    chance = random.Random(SEED)
    with kctl_broker(tmp_path / "data") as broker:
        with Attacker(broker.bootstrap) as attacker:
            assert create(attacker, "orders") == 0
        if is_clean:
            broker.stop()
        else:
            broker.kill9()
        logs = broker.logs_dir
        for name in (
            "odd",
            "-0",
            "a-",
            "a--1",
            "a-99999999999",
            "a b-0",
            "\u202e-0",
            "x" * 249,
            ".hidden-0",
            "a-0-future",
        ):
            (logs / name).mkdir()
        for name in ("orders-7", "file-0", "notes.txt", "00000000000000000000.log"):
            (logs / name).write_bytes(chance.randbytes(100))
        for name in ("odd.log", "00000000000000000000.logx", "99999999999999999999.log", "leader-epoch-checkpoint.tmp"):
            (logs / "orders-0" / name).write_bytes(chance.randbytes(100))
        (logs / "orders-1" / "00000000000000000000.index").write_bytes(chance.randbytes(101))
        (logs / "orders-1" / "leader-epoch-checkpoint").write_bytes(chance.randbytes(100))
        broker.start()
        with Attacker(broker.bootstrap) as attacker:
            assert create(attacker, "after") == 0, f"seed {SEED}"
        assert "Traceback" not in broker.log_text, f"seed {SEED}: {unexpected_lines(broker.log_text)}"
