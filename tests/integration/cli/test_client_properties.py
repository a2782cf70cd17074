"""Each client property that the table calls obeyed has its effect, seen in the requests that a real broker receives.

A relay between the command and the broker, at the address that the broker advertises, decodes the requests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from kctl.client.properties.table import PROPERTIES, Use
from kctl.protocol.apis.fetch import FetchRequest
from kctl.protocol.apis.find_coordinator import FindCoordinatorRequest
from kctl.protocol.apis.init_producer_id import InitProducerIdRequest
from kctl.protocol.apis.join_group import JoinGroupRequest
from kctl.protocol.apis.list_offsets import ListOffsetsRequest
from kctl.protocol.apis.metadata import MetadataRequest
from kctl.protocol.apis.offset_commit import OffsetCommitRequest
from kctl.protocol.apis.produce import ProduceRequest
from kctl.protocol.codec import decode
from kctl.protocol.headers import decode_request_header
from kctl.protocol.registry import api
from kctl.records.batch import iterate_batches
from kctl.records.header import BatchHeader
from tests.integration.cli.conftest import command_line
from tests.integration.cli.test_shell import Interruption, Relay
from tests.peers import probe
from tests.peers.kctl_broker import kctl_broker
from tests.peers.ran import Ran

RECORDS = 40
LINES = "".join(f"record {number}\n" for number in range(RECORDS)).encode()
READ = "consume orders --from start --value-only"
WRITE = "produce target"
COPY = "copy orders copies --partitions hash"


class Requests(Interruption):
    """Records the requests; those of the `silent` classes get no response."""

    def __init__(self, silent: tuple[type, ...] = ()) -> None:
        super().__init__(None)
        self._silent = silent
        self._guard = threading.Lock()
        self._all: list[tuple[str | None, object]] = []

    def stops(self, frame: bytes) -> bool:
        header, position = decode_request_header(frame)
        known = api(header.api_key)
        assert known is not None
        request: object = decode(known.request, frame, header.api_version, position)[0]
        with self._guard:
            self._all.append((header.client_id, request))
        return isinstance(request, self._silent)

    @property
    def client_ids(self) -> set[str | None]:
        return {client_id for client_id, _ in self._all}

    def of(self, kind: type) -> list[Any]:
        return [request for _, request in self._all if isinstance(request, kind)]

    @property
    def batches(self) -> list[BatchHeader]:
        """The headers of all batches that were written."""
        return [batch for _, batch in self._partitions_written()]

    @property
    def partitions(self) -> set[int]:
        """The partitions that were written to."""
        return {partition for partition, _ in self._partitions_written()}

    def _partitions_written(self) -> Iterator[tuple[int, BatchHeader]]:
        for request in self.of(ProduceRequest):
            for topic in request.topic_data:
                for data in topic.partition_data:
                    for batch in iterate_batches(data.records):
                        yield data.index, batch

    @property
    def partition_bytes(self) -> set[int]:
        return {
            partition.partition_max_bytes
            for request in self.of(FetchRequest)
            for topic in request.topics
            for partition in topic.partitions
        }


class Scene(NamedTuple):
    relay: Relay
    folder: Path
    run: Callable[..., Ran]

    def __call__(
        self, line: str, properties: dict[str, str], stdin: bytes = b"", silent: tuple[type, ...] = ()
    ) -> tuple[Ran, Requests]:
        config = self.folder / "client.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        config.chmod(0o600)
        requests = Requests(silent)
        with self.relay.asking(requests):
            ran = self.run(f"{line} --command-config {config}", stdin)
        return ran, requests


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("properties")
    port = probe.free_port()
    relay = Relay(port)
    properties = {
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{relay.port}",
        "group.initial.rebalance.delay.ms": "0",
    }
    environment = {"KCTL_BOOTSTRAP_SERVER": f"127.0.0.1:{relay.port}", "XDG_CONFIG_HOME": str(folder)}
    try:
        with kctl_broker(folder / "data", port=port, properties=properties):
            run = command_line(environment)
            for topic in ("orders", "target", "copies"):
                assert run(f"topics create {topic} --partitions {1 if topic == 'orders' else 3}").status == 0
            made = Scene(relay, folder, run)
            assert made("produce orders", {"batch.size": "0"}, LINES)[0].status == 0
            yield made
    finally:
        relay.close()


class Row(NamedTuple):
    """A command line, the property, and what is then true of its output and its requests."""

    line: str
    value: str
    holds: Callable[[Ran, Requests], object]
    more: Mapping[str, str] = MappingProxyType({})


def shown(ran: Ran) -> int:
    return len(ran.out.splitlines())


ROWS: dict[str, list[Row]] = {
    "client.id": [Row("topics list", "till-7", lambda _, sent: sent.client_ids == {"till-7"})],
    "client.rack": [Row(READ, "r1", lambda _, sent: {request.rack_id for request in sent.of(FetchRequest)} == {"r1"})],
    "fetch.min.bytes": [
        Row(line, "7", lambda _, sent: {request.min_bytes for request in sent.of(FetchRequest)} == {7})
        for line in (READ, COPY, "perf consume orders --client kctl", f"{READ} --group g1 -n 1")
    ],
    "fetch.max.wait.ms": [
        Row(READ, "7", lambda _, sent: {request.max_wait_ms for request in sent.of(FetchRequest)} == {7})
    ],
    "fetch.max.bytes": [
        Row(READ, "777", lambda _, sent: {request.max_bytes for request in sent.of(FetchRequest)} == {777})
    ],
    "max.partition.fetch.bytes": [Row(READ, "777", lambda _, sent: sent.partition_bytes == {777})],
    "isolation.level": [
        Row(
            READ,
            "read_uncommitted",
            lambda _, sent: {request.isolation_level for request in sent.of(FetchRequest)} == {0},
        ),
        Row(
            f"{READ} --isolation-level read_committed",
            "read_uncommitted",
            lambda _, sent: {request.isolation_level for request in sent.of(FetchRequest)} == {1},
        ),
        Row(
            "perf consume orders --client kctl",
            "read_uncommitted",
            lambda _, sent: {request.isolation_level for request in sent.of(FetchRequest)} == {0},
        ),
        Row(
            COPY,
            "read_uncommitted",
            lambda _, sent: {request.isolation_level for request in sent.of(FetchRequest)} == {0},
        ),
    ],
    "auto.offset.reset": [
        Row("consume orders --value-only", "latest", lambda ran, _: ran.status == 0 and not shown(ran)),
        Row("consume orders --value-only", "by_duration:PT1H", lambda ran, _: shown(ran) == RECORDS),
        Row(READ, "latest", lambda ran, _: shown(ran) == RECORDS),
        Row("consume orders --value-only --group r1", "latest", lambda ran, _: ran.status == 0 and not shown(ran)),
        Row(
            "consume orders --value-only --group r2", "none", lambda ran, _: ran.status == 1 and "add --from" in ran.err
        ),
        Row("consume orders --value-only", "none", lambda ran, _: ran.status == 2 and "add --from" in ran.err),
    ],
    "enable.auto.commit": [
        Row(f"{READ} --group c1 -n 5", "false", lambda ran, sent: shown(ran) == 5 and not sent.of(OffsetCommitRequest)),
        Row(f"{READ} --group c2 -n 5", "true", lambda ran, sent: shown(ran) == 5 and sent.of(OffsetCommitRequest)),
    ],
    "group.instance.id": [
        Row(f"{READ} --group s1 -n 1", "i-1", lambda _, sent: sent.of(JoinGroupRequest)[0].group_instance_id == "i-1")
    ],
    "session.timeout.ms": [
        Row(f"{READ} --group s2 -n 1", "7777", lambda _, sent: sent.of(JoinGroupRequest)[0].session_timeout_ms == 7777)
    ],
    "heartbeat.interval.ms": [
        Row(f"{READ} --group s3 -n 1", "99999", lambda ran, _: ran.status == 2 and "session.timeout.ms" in ran.err)
    ],
    "max.poll.interval.ms": [
        Row(
            f"{READ} --group s4 -n 1", "7777", lambda _, sent: sent.of(JoinGroupRequest)[0].rebalance_timeout_ms == 7777
        )
    ],
    "partition.assignment.strategy": [
        Row(f"{READ} --group s5 -n 1", "sticky", lambda _, sent: protocols(sent) == ["sticky"]),
        Row(f"{READ} --group s6 -n 1 --assignor range", "sticky", lambda _, sent: protocols(sent) == ["range"]),
    ],
    "group.protocol": [Row(f"{READ} --group s7 -n 1", "consumer", lambda ran, _: "KIP-848" in ran.err)],
    "group.id": [
        Row(READ, "g7", lambda ran, sent: "--group g7" in ran.err and not sent.of(FindCoordinatorRequest)),
    ],
    "acks": [
        Row(WRITE, "1", lambda _, sent: {request.acks for request in sent.of(ProduceRequest)} == {1}),
        Row(WRITE, "1", lambda _, sent: not sent.of(InitProducerIdRequest)),
        Row(f"{WRITE} --acks all", "1", lambda _, sent: {request.acks for request in sent.of(ProduceRequest)} == {-1}),
        Row(PERF := "perf produce target --num-records 5 --client kctl --yes", "0", lambda _, sent: acks(sent) == {0}),
        Row(COPY, "1", lambda ran, _: ran.status == 2 and "requires acks=all" in ran.err),
    ],
    "enable.idempotence": [
        Row(WRITE, "false", lambda _, sent: not sent.of(InitProducerIdRequest) and acks(sent) == {-1}),
        Row(WRITE, "true", lambda ran, _: ran.status == 2, {"acks": "1"}),
    ],
    "compression.type": [
        Row(WRITE, "zstd", lambda _, sent: {batch.codec.name for batch in sent.batches} == {"ZSTD"}),
        Row(COPY, "gzip", lambda _, sent: {batch.codec.name for batch in sent.batches} == {"GZIP"}),
        Row(PERF, "lz4", lambda _, sent: {batch.codec.name for batch in sent.batches} == {"LZ4"}),
        Row(f"{WRITE} --codec none", "zstd", lambda _, sent: {batch.codec.name for batch in sent.batches} == {"NONE"}),
    ],
    "compression.gzip.level": [Row(WRITE, "10", lambda ran, _: ran.status == 2)],
    "compression.lz4.level": [Row(WRITE, "18", lambda ran, _: ran.status == 2)],
    "compression.zstd.level": [
        Row(WRITE, "23", lambda ran, _: ran.status == 2),
        Row(WRITE, "-5", lambda ran, _: ran.status == 0, {"compression.type": "zstd"}),
    ],
    "batch.size": [
        Row(WRITE, "0", lambda _, sent: len(sent.batches) == RECORDS),
        Row(PERF, "1", lambda _, sent: len(sent.batches) == 5),
    ],
    "linger.ms": [Row(WRITE, "0", lambda ran, sent: ran.status == 0 and sent.batches)],
    "buffer.memory": [Row(WRITE, "1", lambda _, sent: len(sent.batches) == RECORDS)],
    "max.request.size": [Row(WRITE, "20", lambda ran, sent: "max.request.size=20" in ran.err and not sent.batches)],
    "delivery.timeout.ms": [Row(WRITE, "10", lambda ran, _: ran.status == 2 and "request.timeout.ms" in ran.err)],
    "partitioner.class": [
        Row(
            WRITE,
            "org.apache.kafka.clients.producer.RoundRobinPartitioner",
            lambda _, sent: sent.partitions == {0, 1, 2},
            {"batch.size": "0"},
        ),
        Row(WRITE, "org.example.Mine", lambda ran, _: ran.status == 2),
    ],
    "partitioner.ignore.keys": [
        Row(f"{WRITE} --key k", "true", lambda _, sent: sent.partitions == {0, 1, 2}, {"batch.size": "0"}),
        Row(f"{WRITE} --key k", "false", lambda _, sent: len(sent.partitions) == 1, {"batch.size": "0"}),
    ],
    "transaction.timeout.ms": [
        Row(
            f"{WRITE} --transactional-id t",
            "7777",
            lambda _, sent: {request.transaction_timeout_ms for request in sent.of(InitProducerIdRequest)} == {7777},
        )
    ],
    "transactional.id": [
        Row(WRITE, "t", lambda ran, sent: ran.status == 2 and not sent.batches),
        Row(
            f"{WRITE} --transactional-id t2",
            "t",
            lambda ran, sent: {o.transactional_id for o in sent.of(ProduceRequest)} == {"t2"},
        ),
    ],
    "transaction.two.phase.commit.enable": [Row(WRITE, "true", lambda ran, _: ran.status == 2)],
    "key.serializer": [Row(WRITE, "a.AvroSerializer", lambda ran, _: ran.status == 2 and "--key-schema" in ran.err)],
    "value.serializer": [
        Row(WRITE, "a.AvroSerializer", lambda ran, _: ran.status == 2),
        Row(WRITE, "org.apache.kafka.common.serialization.StringSerializer", lambda ran, _: ran.status == 0),
    ],
    "key.deserializer": [Row(READ, "a.AvroDeserializer", lambda ran, _: ran.status == 2 and "--decode" in ran.err)],
    "value.deserializer": [Row(READ, "a.AvroDeserializer", lambda ran, _: ran.status == 2)],
    "request.timeout.ms": [
        Row(WRITE, "7777", lambda _, sent: {request.timeout_ms for request in sent.of(ProduceRequest)} == {7777})
    ],
    "client.dns.lookup": [
        Row("topics list", "resolve_canonical_bootstrap_servers_only", lambda ran, _: ran.status == 2)
    ],
    "bootstrap.servers": [
        Row("topics list", "PLAINTEXT://127.0.0.1:1", lambda ran, sent: ran.status == 0 and sent.of(MetadataRequest))
    ],
    "security.protocol": [Row("topics list", "TLS", lambda ran, _: ran.status == 2)],
}
"""Effects by property."""

SILENCES: dict[str, Row] = {
    "request.timeout.ms": Row("topics list --timeout 1s", "50", lambda ran, sent: len(sent.of(MetadataRequest)) > 1),
    "default.api.timeout.ms": Row("topics list", "300", lambda ran, sent: "300 ms" in ran.err),
    "retry.backoff.ms": Row(
        "topics list --timeout 1s",
        "5000",
        lambda _, sent: len(sent.of(MetadataRequest)) == 1,
        {"request.timeout.ms": "50"},
    ),
    "retry.backoff.max.ms": Row(
        "topics list --timeout 1s",
        "60",
        lambda _, sent: len(sent.of(MetadataRequest)) > 5,
        {"request.timeout.ms": "20", "retry.backoff.ms": "50"},
    ),
}
"""Effects that are seen when the broker does not respond to Metadata."""

ELSEWHERE = {
    "auto.commit.interval.ms": "test_offsets_are_committed_while_records_are_read",
    "enable.metrics.push": "tests/integration/cli/test_client_telemetry.py",
    "group.remote.assignor": "tests/integration/cli/test_consumer_protocol.py",
    "share.acknowledgement.mode": "tests/integration/cli/test_share_groups.py",
    "share.acquire.mode": "tests/integration/cli/test_share_groups.py",
    "max.in.flight.requests.per.connection": "tests/unit/client/test_producer.py",
    "partitioner.adaptive.partitioning.enable": "tests/unit/client/test_property_table.py",
    "reconnect.backoff.ms": "tests/unit/client/test_producer.py",
    "reconnect.backoff.max.ms": "tests/unit/client/test_producer.py",
    "retries": "tests/unit/client/test_property_table.py",
    "metadata.max.age.ms": "test_metadata_is_requested_again_after_its_age",
    "max.block.ms": "tests/unit/client/test_public_producer.py",
    "max.poll.records": "tests/unit/client/test_public_consumer.py",
    "socket.connection.setup.timeout.ms": "tests/unit/client/test_property_table.py",
}


def protocols(sent: Requests) -> list[str]:
    return [protocol.name for protocol in sent.of(JoinGroupRequest)[0].protocols]


def acks(sent: Requests) -> set[int]:
    """The acks of the requests to write records: with 0 the command may end before the relay has read them."""
    probe.wait_until(lambda: bool(sent.of(ProduceRequest)), what="a Produce request", timeout_s=60)
    return {request.acks for request in sent.of(ProduceRequest)}


def test_each_obeyed_property_has_an_effect(scene: Scene) -> None:
    obeyed = {name for name, declared in PROPERTIES.items() if declared.use is Use.OBEYED}
    of_security = {name for name in obeyed if name.startswith(("ssl.", "sasl."))}
    assert obeyed - of_security == ROWS.keys() | SILENCES.keys() | ELSEWHERE.keys()
    wrong = []
    for name, rows in ROWS.items():
        for row in rows:
            stdin = LINES if row.line.startswith("produce") else b""
            ran, sent = scene(row.line, {name: row.value, **row.more}, stdin)
            if not row.holds(ran, sent):
                wrong.append(f"{name}={row.value}: {row.line}: status {ran.status}: {ran.err}")
    assert not wrong, "\n".join(wrong)


def test_offsets_are_committed_while_records_are_read(scene: Scene) -> None:
    """A reader may be faster than the first commit, and is then started again."""
    properties = {"auto.commit.interval.ms": "0", "max.partition.fetch.bytes": "1", "fetch.max.bytes": "1"}
    for number in range(20):
        ran, sent = scene(f"{READ} --group c3-{number}", properties)
        assert ran.status == 0, ran.err
        if len(sent.of(OffsetCommitRequest)) > 1:
            return
    raise AssertionError("there was never a commit before the one at the end")


def test_time_outs_of_requests_and_pauses_between_them_are_those_of_the_properties(scene: Scene) -> None:
    for name, row in SILENCES.items():
        ran, sent = scene(row.line, {name: row.value, **row.more}, silent=(MetadataRequest,))
        assert ran.status == 4, (name, ran.err)
        assert row.holds(ran, sent), (name, ran.err)


def test_metadata_is_requested_again_after_its_age(scene: Scene) -> None:
    _, fresh = scene(READ, {"metadata.max.age.ms": "0", "max.partition.fetch.bytes": "1", "fetch.max.bytes": "1"})
    _, kept = scene(READ, {"max.partition.fetch.bytes": "1", "fetch.max.bytes": "1"})
    assert len(fresh.of(MetadataRequest)) >= len(kept.of(MetadataRequest))
    assert len(fresh.of(MetadataRequest)) > len(fresh.of(ListOffsetsRequest))


def test_properties_without_an_effect_are_reported(scene: Scene) -> None:
    ran, _ = scene(READ, {"acks": "1", "retires": "3", "kctl.mask.paths": "value.a", "check.crcs": "false"})
    assert ran.status == 0
    assert "'retires' (is 'retries' meant?)" in ran.err
    assert "kctl consume does not use acks of" in ran.err
    ran, _ = scene(COPY, {"auto.offset.reset": "latest", "partitioner.class": "RoundRobinPartitioner"})
    assert "kctl copy does not use auto.offset.reset of" in ran.err
    assert "kctl.mask" not in ran.err
    ran, _ = scene("topics list", {"acks": "1", "auto.offset.reset": "latest"})
    assert (ran.status, ran.err) == (0, "")
    ran, _ = scene("topics list", {"sasl.password": "hunter2"})
    assert ran.status == 2
    assert "use sasl.jaas.config" in ran.err
    assert "hunter2" not in ran.err
