"""Counts the functions and files of kctl that one request crosses: how much there is to read about it.

    python -m benchmarks.journeys [--names]

The requests are handled by a simulated broker, from the frame to the reply, with all that the broker does meanwhile;
Produce, Fetch and JoinGroup have acks=1, records to read, and a group that is complete at once.  `topics describe` is
the command, from its arguments to its output, against a broker in another process.  Each has been done before, so that
codecs are compiled and caches filled.  The simulation, the test client and the compiled codecs are not counted.
`docs/decisions/structure.md` has the results.
"""

from __future__ import annotations

import asyncio
import io
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from types import CodeType, FrameType

import kctl
from kctl.cli import main as command
from kctl.client.connections.framing import request_frame
from kctl.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kctl.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from kctl.protocol.apis.find_coordinator import FindCoordinatorRequest
from kctl.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.server.requests.context import Peer
from kctl.testing.brokers.broker_process import BrokerProcess
from kctl.testing.sim_cluster import SimCluster
from kctl.testing.sim_loop import SimLoop, simulate

ROOT = Path(kctl.__file__).parent
NOT_COUNTED = tuple(str(ROOT / name) for name in ("testing", "client"))
TOPIC = "orders"
PROPERTIES = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.replication.factor": "1"}
WARM_UP = 3


class Journey:
    """The functions that were called, by their code."""

    def __init__(self) -> None:
        self.functions: set[CodeType] = set()

    @property
    def files(self) -> set[str]:
        """The files that have them."""
        return {code.co_filename for code in self.functions}

    def __str__(self) -> str:
        return f"{len(self.functions)} functions in {len(self.files)} files"

    def names(self) -> str:
        """The functions, by file."""
        named = {(str(Path(code.co_filename).relative_to(ROOT)), code.co_qualname) for code in self.functions}
        return "\n".join(f"  {file}: {name}" for file, name in sorted(named))


@contextmanager
def followed(not_counted: tuple[str, ...] = NOT_COUNTED) -> Iterator[Journey]:
    """The journey of what the block does in this thread."""
    journey, root = Journey(), f"{ROOT}/"

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(root) and not code.co_filename.startswith(not_counted):
            journey.functions.add(code)

    sys.setprofile(note)
    try:
        yield journey
    finally:
        sys.setprofile(None)


def frame(request: object, version: int) -> bytes:
    """The request as a frame without its length."""
    return b"".join(request_frame(request, version, correlation_id=1, client_id="client"))[4:]


def produce(_: int) -> bytes:
    """One record."""
    data = PartitionProduceData(index=0, records=build_batch([Record(0, 0, None, bytes(100))]))
    topics = [TopicProduceData(name=TOPIC, partition_data=[data])]
    return frame(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), 7)


def fetch(_: int) -> bytes:
    """All records of the partition."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=TOPIC, partitions=[partition])]
    return frame(FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, topics=topics), 11)


def join(number: int) -> bytes:
    """The only member of a group of its own, as clients before KIP-394 join."""
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    request = JoinGroupRequest(
        group_id=f"group-{number}",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=protocols,
    )
    return frame(request, 2)


def create(number: int) -> bytes:
    """A topic with one partition."""
    topic = CreatableTopic(name=f"{TOPIC}-{number}", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    return frame(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 4)


REQUESTS: dict[str, Callable[[int], bytes]] = {
    "Produce": produce,
    "Fetch": fetch,
    "JoinGroup": join,
    "CreateTopics": create,
}


def of_requests() -> dict[str, Journey]:
    """The journey of each request."""
    journeys: dict[str, Journey] = {}

    async def scene(loop: SimLoop) -> None:
        cluster = SimCluster(loop, properties=PROPERTIES)
        await cluster.start(1)
        async with cluster.client() as client:
            topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[])
            creation = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
            await client.on_controller(lambda connection: connection.send(creation, CreateTopicsResponse))
        broker = cluster.brokers[0].broker
        assert broker is not None
        dispatcher, peer = broker._dispatcher, Peer("/client", "PLAINTEXT")  # noqa: SLF001

        async def handle(request: bytes) -> None:
            reply = dispatcher.handle(memoryview(bytearray(request)), peer)
            if isinstance(reply, asyncio.Future):
                await reply

        await handle(frame(FindCoordinatorRequest(key="group-0", key_type=0), 1))
        await asyncio.sleep(10)  # Virtual time: __consumer_offsets is created and loaded.
        for name, made in REQUESTS.items():
            for number in range(WARM_UP):
                await handle(made(number))
            request = made(WARM_UP)
            with followed() as journeys[name]:
                await handle(request)
        await cluster.stop()

    simulate(scene, seed=1)
    return journeys


def of_describe() -> Journey:
    """The journey of `topics describe`."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        broker = BrokerProcess(Path(folder) / "data")
        stack.callback(broker.stop)
        broker.start()

        def run(*verb: str) -> None:
            with redirect_stdout(io.StringIO()):
                status = command(["topics", *verb, "--bootstrap-server", broker.bootstrap_servers])
            assert not status, f"{verb} ended with status {status}"

        run("create", TOPIC)
        for _ in range(WARM_UP):
            run("describe", TOPIC)
        with followed(()) as journey:
            run("describe", TOPIC)
    return journey


if __name__ == "__main__":
    for name, journey in {**of_requests(), "topics describe": of_describe()}.items():
        print(f"{name}: {journey}")
        if "--names" in sys.argv:
            print(journey.names())
