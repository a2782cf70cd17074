"""What outsiders write to ZooKeeper and to log directories neither stops a broker nor is a failure in its log."""

from __future__ import annotations

import contextlib
import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError

from kctl.errors import ZooKeeperError
from kctl.limits import CONFIG_PROPERTIES_MAX
from kctl.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kctl.protocol.apis.metadata import MetadataRequest, MetadataResponse
from kctl.server.coordination.transactions.producer_ids import ProducerIds
from kctl.storage.files import RealFiles
from kctl.testing.sim_loop import SimLoop, simulate
from kctl.testing.sim_zookeeper import SimZooKeeper
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.broker_znodes import decode_broker, decode_json
from tests.hostile.fuzzing import unexpected_lines
from tests.hostile.raw_client import Attacker, wait_until
from tests.peers.kctl_broker import kctl_broker
from tests.rows import for_rows

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
REGISTRATION: dict[str, object] = {
    "version": 5,
    "endpoints": ["PLAINTEXT://h:9"],
    "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
    "timestamp": "1",
}
FOREIGN_BROKERS: tuple[dict[str, object], ...] = (
    {"endpoints": ["PLAINTEXT://h:99999999999"]},
    {"endpoints": ["PLAINTEXT://h:-2"]},
    {"endpoints": [f"PLAINTEXT://{'h' * 40_000}:9"]},
    {"endpoints": ["PLAINTEXT://\ud800:9"]},
    {"listener_security_protocol_map": {"PLAINTEXT": 5}},
    {"rack": 5},
    {"rack": "\udfff"},
    {"rack": "r" * 40_000},
)
"""Parts of registrations that no response of Metadata can contain."""
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
        for number, changed in enumerate(FOREIGN_BROKERS):
            write(client, f"/brokers/ids/{200 + number}", json.dumps({**REGISTRATION, **changed}).encode())
        write(client, "/brokers/ids/99999999999", json.dumps(REGISTRATION).encode())
        # A path that has no encoding ended the thread of kazoo, and with it the session.
        write(client, "/config/changes/config_change_0000000099", b'{"version":2,"entity_path":"topics/\\ud800"}')
        client.stop()
        client.close()
        with Attacker(broker.bootstrap) as attacker:
            assert create(attacker, "before") == 0, f"seed {SEED}"
            assert attacker.call(MetadataRequest(topics=[]), MetadataResponse, 5).brokers
        assert "state=expired" not in broker.log_text, f"seed {SEED}"
        broker.restart()
        with Attacker(broker.bootstrap) as attacker:
            wait_until(
                lambda: (
                    "before"
                    in {topic.name for topic in attacker.call(MetadataRequest(topics=None), MetadataResponse, 5).topics}
                ),
                "the metadata after the restart",
            )
            assert create(attacker, "after") == 0, f"seed {SEED}"
        assert "Traceback" not in broker.log_text, f"seed {SEED}"


@for_rows("changed", FOREIGN_BROKERS)
def test_registrations_that_no_response_can_contain_are_refused(changed: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="/brokers/ids/7"):
        decode_broker("/brokers/ids/7", json.dumps({**REGISTRATION, **changed}).encode())


@pytest.mark.parametrize("data", [b'{"brokerid":"\\ud800"}', b'{"brokerid":"\xed\xa0\x80"}'])
def test_text_without_an_encoding_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"/x .*(utf-8|surrogate)"):
        decode_json("/x", data, lambda znode: znode)


@pytest.mark.parametrize("field", ["leader", "leader_epoch", "controller_epoch"])
def test_states_with_numbers_that_no_response_can_contain_are_refused(field: str) -> None:
    state = {"leader": 0, "leader_epoch": 0, "controller_epoch": 1, "isr": [0], field: 1 << 31}
    with pytest.raises(ValueError, match="is not between"):
        znodes.decode_partition_state("/x", json.dumps(state).encode(), 0)


def test_a_configuration_with_too_many_properties_is_ignored() -> None:
    config = {f"p{number}": "" for number in range(CONFIG_PROPERTIES_MAX + 1)}
    with pytest.raises(ValueError, match="/x has 1001 properties"):
        znodes.decode_config("/x", znodes.encode_config(config))


@pytest.mark.parametrize("last", ["9223372036854775807", "9223372036854775808", "-5"])
def test_producer_ids_never_exceed_their_field(last: str) -> None:
    async def main(_loop: SimLoop) -> None:
        session = SimZooKeeper().session()
        await session.start(10_000)
        block = {"version": 1, "broker": 0, "block_start": "0", "block_end": last}
        await session.create(paths.LATEST_PRODUCER_ID_BLOCK, json.dumps(block).encode())
        with pytest.raises(ZooKeeperError, match="latest_producer_id_block"):
            await ProducerIds(0, session).next()

    simulate(main, seed=1)


@pytest.mark.parametrize(("in_logs", "first"), [(-1, 1_000), (999, 1_000), (7_654, 7_655), (1 << 62, 1_000)])
def test_producer_ids_in_the_logs_are_not_given_again_after_zookeeper_was_restored(in_logs: int, first: int) -> None:
    """A client can write any id: those far above the last block do not count, so that it cannot use them all up."""

    async def largest_below(below: int) -> int:
        return in_logs if in_logs < below else -1

    async def main(_loop: SimLoop) -> int:
        session = SimZooKeeper().session()
        await session.start(10_000)
        block = {"version": 1, "broker": 0, "block_start": "0", "block_end": "999"}
        await session.create(paths.LATEST_PRODUCER_ID_BLOCK, json.dumps(block).encode())
        return await ProducerIds(0, session, largest_below).next()

    assert simulate(main, seed=1) == first


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


def test_a_pipe_in_place_of_a_file_is_an_error_and_is_not_waited_for(tmp_path: Path) -> None:
    files, path = RealFiles(), str(tmp_path / "pipe")
    os.mkfifo(path)
    attempts: list[Callable[[], object]] = [
        lambda: files.read(path),
        lambda: files.open(path),
        lambda: files.lock(path),
        lambda: files.write_atomically(path, b""),
    ]
    os.mkfifo(path + ".tmp")
    for attempt in attempts:
        with pytest.raises(OSError, match="pipe"):
            attempt()


def test_a_broker_reports_a_pipe_in_its_log_directory(tmp_path: Path) -> None:
    with kctl_broker(tmp_path / "data") as broker:
        broker.stop()
        checkpoint = broker.logs_dir / "log-start-offset-checkpoint"
        checkpoint.unlink()
        os.mkfifo(checkpoint)
        with pytest.raises(RuntimeError):
            broker.start()
        assert f"{checkpoint}: not a regular file" in broker.log_text
