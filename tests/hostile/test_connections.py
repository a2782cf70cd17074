"""Connections that use more than their share of turns, memory, descriptors or idle time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from kctl.limits import LISTEN_BACKLOG
from kctl.model import Endpoint
from kctl.server.loop import lag
from kctl.server.loop.lag import MeasuredEventLoop
from kctl.server.network.acceptor import Acceptor
from kctl.server.network.connections.channel import DirectChannel, Reply
from kctl.server.network.connections.request_pump import TURN_REQUESTS_MAX
from kctl.server.network.listen_settings import ListenSettings
from kctl.server.requests.context import Peer
from tests.hostile.fuzzing import VALID, ValidClient
from tests.hostile.raw_client import (
    API_VERSIONS,
    connected,
    framed,
    receive_frame,
    request,
    wait_until,
    waiting_fetch,
)
from tests.peers.kctl_broker import KctlBroker, kctl_broker

TOPIC = "victim"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KctlBroker]:
    with kctl_broker(tmp_path_factory.mktemp("connections") / "data") as started:
        with connected(started.bootstrap) as sock:
            # Metadata v1 creates the topic.
            sock.sendall(request(3, 1, b"\0\0\0\1\0\x06" + TOPIC.encode()))
            receive_frame(sock)
        wait_until((started.logs_dir / f"{TOPIC}-0").is_dir, "the topic's folder exists")
        yield started


def test_pipelined_requests_of_one_connection_do_not_delay_another() -> None:
    handled: list[bytes] = []
    other_handled = asyncio.Event()

    def handle(frame: memoryview, _peer: Peer) -> Reply:
        handled.append(bytes(frame))
        if bytes(frame) == b"valid":
            other_handled.set()
        return [framed(b"")]

    async def main() -> None:
        acceptor = Acceptor(
            open_channel=partial(DirectChannel, handle, frame_bytes_max=1 << 20),
            settings=ListenSettings(connections_max_idle_ms=0),
        )
        port = acceptor.bind(Endpoint("PLAINTEXT", "127.0.0.1", 0)).port
        acceptor.start()
        with connected(f"127.0.0.1:{port}") as hostile, connected(f"127.0.0.1:{port}") as other:
            hostile.setblocking(False)
            pipelined = framed(b"hostile") * 45_000
            handled_before: list[int] = []
            for _ in range(200):
                with contextlib.suppress(BlockingIOError):
                    pipelined = pipelined[hostile.send(pipelined) :]
                    hostile.recv(1 << 20)
                other_handled.clear()
                before = len(handled)
                other.sendall(framed(b"valid"))
                await other_handled.wait()
                handled_before.append(handled.index(b"valid", before) - before)
            assert handled.count(b"hostile") > 10 * TURN_REQUESTS_MAX
            assert max(handled_before) <= 4 * TURN_REQUESTS_MAX
        acceptor.close()

    with asyncio.Runner(loop_factory=MeasuredEventLoop) as runner:
        runner.run(main())


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def memory_maps(pid: int) -> int:
    return len(Path(f"/proc/{pid}/maps").read_text().splitlines())


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_closed_connection_frees_its_waiting_fetch(broker: KctlBroker) -> None:
    def storm() -> None:
        for _ in range(1_000):
            with connected(broker.bootstrap) as sock:
                sock.sendall(waiting_fetch(TOPIC) + API_VERSIONS)

    idle = descriptors(broker.pid)
    storm()
    wait_until(lambda: descriptors(broker.pid) <= idle + 5, "all descriptors are free again")
    maps, resident = memory_maps(broker.pid), resident_bytes(broker.pid)
    for _ in range(3):
        storm()
    wait_until(lambda: descriptors(broker.pid) <= idle + 5, "all descriptors are free again")
    # One map or 4 KB for each of the 3,000 connections would be more.
    assert memory_maps(broker.pid) <= maps + 300
    assert resident_bytes(broker.pid) <= resident + (8 << 20)


def test_a_frame_of_100_mb_does_not_stay_in_memory(broker: KctlBroker) -> None:
    with connected(broker.bootstrap) as sock:
        sock.sendall(API_VERSIONS)
        receive_frame(sock)
    before = resident_bytes(broker.pid)
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(connected(broker.bootstrap)) for _ in range(4)]
        for sock in socks:
            # ApiVersions v0 has an empty body; what follows it is ignored.
            sock.sendall(request(18, 0, bytes(99 << 20)))
            receive_frame(sock)
        wait_until(lambda: resident_bytes(broker.pid) <= before + (32 << 20), "the frames' memory is free again")


def test_malformed_requests_of_40_mb_do_not_stay_in_memory(broker: KctlBroker) -> None:
    """The error kept them until a garbage collection: each took 40 MB more."""
    before = resident_bytes(broker.pid)
    null_and_more_topics_than_bytes = b"\xff\xff" + struct.pack(">hii", 1, 1_000, (1 << 31) - 1)
    for _ in range(3):
        with connected(broker.bootstrap) as sock, contextlib.suppress(ConnectionResetError):
            sock.sendall(request(0, 3, null_and_more_topics_than_bytes + bytes(40 << 20)))
            assert not sock.recv(1)
    wait_until(lambda: resident_bytes(broker.pid) <= before + (64 << 20), "the frames' memory is free again")


def test_connections_that_declare_a_large_frame_and_send_none_take_little_memory(broker: KctlBroker) -> None:
    """CVE-2022-34917: the length of a frame made the broker allocate that much before the client authenticated."""
    before = resident_bytes(broker.pid)
    with contextlib.ExitStack() as stack:
        for _ in range(1_000):
            stack.enter_context(connected(broker.bootstrap)).sendall((100 << 20).to_bytes(4, "big") + b"x")
        wait_until(lambda: descriptors(broker.pid) >= 1_000, "all connections are accepted")
        assert resident_bytes(broker.pid) <= before + (20 << 20)


def test_a_burst_of_connections_is_accepted(broker: KctlBroker) -> None:
    host, port = broker.bootstrap.split(":")
    socks = []
    broker.halt()
    try:
        for _ in range(LISTEN_BACKLOG - 1):
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex((host, int(port)))
            socks.append(sock)
    finally:
        broker.resume()
    for sock in socks:
        sock.settimeout(60)
        sock.sendall(API_VERSIONS)
        assert receive_frame(sock)
        sock.close()


def test_idle_connections_leave_descriptors_to_the_log(tmp_path: Path) -> None:
    limited = ("sh", "-c", 'ulimit -n 400; exec "$@"', "sh")
    with kctl_broker(tmp_path / "data", run_by=limited) as broker, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connected(broker.bootstrap)) for _ in range(500)]
        wait_until(lambda: "closing a new connection" in broker.log_text, "the broker refuses connections")
        assert descriptors(broker.pid) <= 301
        # A topic needs descriptors for its log; a connection that is open already can create it.
        idle[0].sendall(request(3, 1, b"\0\0\0\1\0\x06" + TOPIC.encode()))
        receive_frame(idle[0])
        wait_until((broker.logs_dir / f"{TOPIC}-0").is_dir, "the topic's folder exists")
        for sock in idle:
            sock.close()
        wait_until(lambda: is_served(broker.bootstrap), "new connections are served again")
        assert " ERROR " not in broker.log_text


def test_a_topic_with_more_segments_than_descriptors_is_written_and_read(tmp_path: Path) -> None:
    limited = ("sh", "-c", 'ulimit -n 400; exec "$@"', "sh")
    with kctl_broker(tmp_path / "data", run_by=limited) as broker, contextlib.ExitStack() as stack:
        valid = ValidClient(broker.bootstrap)
        valid.prepare()
        small = ConfigEntry("segment.bytes", "100", incremental_operation=AlterConfigOpType.SET)
        topic = ConfigResource(ConfigResource.Type.TOPIC, VALID, incremental_configs=[small])
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.incremental_alter_configs([topic])[topic].result(60)
        valid.produce(1)
        for _ in range(500):
            stack.enter_context(connected(broker.bootstrap))
        wait_until(lambda: "closing a new connection" in broker.log_text, "the broker refuses connections")
        valid.produce(600)
        stack.close()
        wait_until(lambda: is_served(broker.bootstrap), "new connections are served again")
        assert valid.consumed() == list(range(601))
        assert len(list((broker.logs_dir / f"{VALID}-0").glob("*.log"))) > 400
        broker.restart()
        assert valid.consumed() == list(range(601))
        assert " ERROR " not in broker.log_text


def is_served(bootstrap: str) -> bool:
    try:
        with connected(bootstrap) as sock:
            sock.sendall(API_VERSIONS)
            return bool(receive_frame(sock))
    except (OSError, EOFError):
        return False


def test_a_client_that_never_reads_is_closed_after_the_idle_time(tmp_path: Path) -> None:
    with (
        kctl_broker(tmp_path / "data", properties={"connections.max.idle.ms": "2000"}) as broker,
        connected(broker.bootstrap) as sock,
    ):
        sock.setblocking(False)
        data = API_VERSIONS * 100_000
        with contextlib.suppress(BlockingIOError):
            while data:
                data = data[sock.send(data) :]

        def is_closed() -> bool:
            try:
                sock.send(b"x")
            except BlockingIOError:
                return False
            except OSError:
                return True
            return False

        wait_until(is_closed, "the connection is closed")


def test_clients_that_leave_at_once_are_noticed_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clients, bound = 40, 5
    monkeypatch.setattr(lag, "READY_SOCKETS_MAX", bound)
    served: list[tuple[float, int]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, MeasuredEventLoop)
        pairs = [socket.socketpair() for _ in range(clients)]
        all_served = asyncio.Event()

        def on_readable(number: int) -> None:
            served.append((loop.iteration.started_s, number))
            if len({number for _, number in served}) == clients:
                all_served.set()

        for number, (ours, theirs) in enumerate(pairs):
            loop.add_reader(ours, on_readable, number)  # Stays readable, like a client that goes on sending.
            theirs.close()
        await all_served.wait()
        for ours, _ in pairs:
            loop.remove_reader(ours)
            ours.close()

    with asyncio.Runner(loop_factory=MeasuredEventLoop) as runner:
        runner.run(main())
    iterations = Counter(started_s for started_s, _ in served)
    assert max(iterations.values()) <= bound
    assert len(served) <= 2 * clients, "each is served once before any is served again"
