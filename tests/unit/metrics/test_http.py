"""The HTTP endpoint, also with hostile scrapers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.config.config_loading import load_broker_config
from kctl.server.metrics.endpoint import (
    METRICS_CONNECTIONS_MAX,
    METRICS_HEAD_BYTES_MAX,
    MetricsEndpoint,
    Refused,
    parse_head,
)
from kctl.server.network.acceptor import ListenError
from tests.rows import for_rows

GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
Scrape = Callable[[str], Awaitable[tuple[str, Sequence[bytes]]]]


async def small(accept: str) -> tuple[str, Sequence[bytes]]:
    return "text/plain", [b"a 1\n", b"b 2\n"]


async def no_reason() -> str:
    return ""


@asynccontextmanager
async def endpoint(scrape: Scrape = small, not_ready: str = "") -> AsyncIterator[int]:
    async def reason() -> str:
        return not_ready

    one = MetricsEndpoint(scrape, reason)
    port = one.bind("127.0.0.1", 0)
    await one.start()
    try:
        yield port
    finally:
        await one.close()


async def response(port: int, sent: bytes) -> bytes:
    """What the endpoint sends until it closes the connection."""
    return await exchange(*await asyncio.open_connection("127.0.0.1", port), sent)


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sent: bytes) -> bytes:
    """What the endpoint sends on an open connection until it closes it."""
    writer.write(sent)
    try:
        async with asyncio.timeout(30):
            return await reader.read()
    finally:
        writer.close()


def call(sent: bytes, scrape: Scrape = small, not_ready: str = "") -> bytes:
    async def main() -> bytes:
        async with endpoint(scrape, not_ready) as port:
            return await response(port, sent)

    return asyncio.run(main())


def closing(request: bytes) -> bytes:
    return request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")


def test_metrics_are_sent_with_their_length() -> None:
    head, _, body = call(closing(GET)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert b"Content-Length: 8" in head
    assert body == b"a 1\nb 2\n"


def test_head_gets_no_body() -> None:
    head, _, body = call(closing(GET.replace(b"GET", b"HEAD"))).partition(b"\r\n\r\n")
    assert b"Content-Length: 8" in head
    assert body == b""


def test_a_connection_serves_several_requests_in_order() -> None:
    sent = GET.replace(b"/metrics", b"/healthz") + closing(GET)
    completed = call(sent)
    assert completed.index(b"ok\n") < completed.index(b"a 1\n")


@pytest.mark.parametrize(("not_ready", "status"), [("", b"200"), ("the broker is starting", b"503")])
def test_readiness_contains_its_reason(not_ready: str, status: bytes) -> None:
    completed = call(closing(GET.replace(b"/metrics", b"/readyz")), not_ready=not_ready)
    assert completed.startswith(b"HTTP/1.1 " + status)
    assert not_ready.encode() in completed


@for_rows(
    "sent, status",
    [
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"DELETE /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"GET /metrics\r\n\r\n", b"400"),
        (b"\r\n\r\n", b"400"),
        (b"\x00\x00\x00\x10\x00\x12\x00\x03\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", b"400"),
        (b"GET /metrics HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 0\r\n\r\nhello", b"400"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\n folded: x\r\n\r\n", b"400"),
        (b"GET /\xff HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", b"404"),
        (b"GET /../../etc/passwd HTTP/1.1\r\nConnection: close\r\n\r\n", b"404"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"a" * METRICS_HEAD_BYTES_MAX + b"\r\n\r\n", b"431"),
    ],
)
def test_other_requests_are_refused_and_the_connection_is_closed(sent: bytes, status: bytes) -> None:
    completed = call(sent)
    assert completed.startswith(b"HTTP/1.1 " + status)
    assert completed.count(b"\r\n\r\n") == 1


@for_rows("path", [b"/metrics", b"/snapshot", b"/commands/restore"])
@for_rows("method", [b"GET", b"PUT", b"POST"])
def test_headers_do_not_change_what_is_permitted(path: bytes, method: bytes) -> None:
    """CVE-2024-51504, CVE-2025-58457: ZooKeeper's HTTP server trusted X-Forwarded-For, and let readers restore."""
    request = closing(b"%s %s HTTP/1.1\r\nHost: a\r\n\r\n" % (method, path))
    plain = call(request)
    claims = (b"X-Forwarded-For: 127.0.0.1", b"Forwarded: for=127.0.0.1", b"Authorization: digest root:root")
    assert {call(request.replace(b"Host: a", claim)) for claim in claims} == {plain}
    assert plain.startswith(b"HTTP/1.1 200") == (method == b"GET" and path == b"/metrics")


def test_the_endpoint_without_authentication_is_off_and_local_by_default() -> None:
    """CVE-2025-61673: a registry accepted requests without an Authorization header."""
    defaults, _ = load_broker_config({})
    assert (defaults.metrics_port, defaults.metrics_host) == (-1, "127.0.0.1")


def test_a_failure_of_a_scrape_closes_one_connection() -> None:
    calls = 0

    async def failing_once(accept: str) -> tuple[str, Sequence[bytes]]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RuntimeError("a bug")
        return await small(accept)

    async def main() -> tuple[bytes, bytes]:
        async with endpoint(failing_once) as port:
            return await response(port, GET), await response(port, closing(GET))

    first, second = asyncio.run(main())
    assert first == b""
    assert second.endswith(b"b 2\n")


def test_a_busy_port_is_reported_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        async def main() -> None:
            MetricsEndpoint(small, no_reason).bind("127.0.0.1", port)

        with pytest.raises(
            ListenError, match=rf"^127.0.0.1:{port} is in use by another process: [^\n]*--metrics-port$"
        ):
            asyncio.run(main())


def test_a_scraper_that_does_not_read_keeps_no_other_from_being_served() -> None:
    async def large(accept: str) -> tuple[str, Sequence[bytes]]:
        return "text/plain", [b"x" * 65536] * 512

    async def main() -> int:
        async with endpoint(large) as port:
            with socket.socket() as silent:
                silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                silent.setblocking(False)
                await asyncio.get_running_loop().sock_connect(silent, ("127.0.0.1", port))
                await asyncio.get_running_loop().sock_sendall(silent, GET)
                return len(await response(port, closing(GET)))

    assert asyncio.run(main()) > 32 << 20


@pytest.mark.long
def test_of_hundreds_of_connections_at_once_a_bounded_number_is_served_and_then_new_ones() -> None:
    most = running = 0

    async def counted(accept: str) -> tuple[str, Sequence[bytes]]:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return await small(accept)

    async def main() -> tuple[list[bytes | BaseException], bytes]:
        async with endpoint(counted) as port:
            connecting = (asyncio.open_connection("127.0.0.1", port) for _ in range(500))
            made = await asyncio.gather(*connecting, return_exceptions=True)
            opened = [connection for connection in made if isinstance(connection, tuple)]
            assert len(opened) > METRICS_CONNECTIONS_MAX
            many = await asyncio.gather(
                *(exchange(*connection, closing(GET)) for connection in opened), return_exceptions=True
            )
            while True:  # The last connections may be closing still; pytest's timeout bounds this.
                if last := await refused_as_nothing(port):
                    return many, last

    async def refused_as_nothing(port: int) -> bytes:
        try:
            return await response(port, closing(GET))
        except ConnectionError:
            return b""

    many, last = asyncio.run(main())
    served = [answer for answer in many if isinstance(answer, bytes) and answer.endswith(b"b 2\n")]
    assert 0 < len(served) < len(many)
    assert 0 < most <= METRICS_CONNECTIONS_MAX
    assert last.endswith(b"b 2\n")


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nAcc", GET], ids=["nothing", "half", "reads nothing"])
def test_silent_clients_do_not_prevent_health_checks(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kctl.server.metrics.endpoint._CLIENT_WAIT_S", 0)

    async def large(accept: str) -> tuple[str, Sequence[bytes]]:
        return "text/plain", [bytes(1 << 20)] * 64

    async def main() -> list[bytes]:
        async with endpoint(large) as port:
            with ExitStack() as stack:
                for _ in range(METRICS_CONNECTIONS_MAX):
                    held = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                    held.sendall(sent)
                    await asyncio.sleep(0)
                request = closing(GET.replace(b"/metrics", b"/healthz"))
                return [await response(port, request) for _ in range(3)]

    for completed in asyncio.run(main()):
        assert completed.startswith(b"HTTP/1.1 200")


def test_the_system_queues_connections_while_the_event_loop_is_busy() -> None:
    async def main() -> int:
        async with endpoint() as port:
            # The loop accepts none of them; one that the queue does not hold fails after the time-out.
            clients = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(300)]
            for client in clients:
                client.close()
            return len(clients)

    assert asyncio.run(main()) == 300


@given(st.binary(max_size=300))
def test_any_bytes_are_a_request_or_refused(head: bytes) -> None:
    statuses = set()
    try:
        assert parse_head(head).path
    except Refused as refusal:
        statuses.add(refusal.status)
    assert statuses <= {400, 405}


def test_all_accept_headers_of_a_request_are_read() -> None:
    head = b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\naccept: text/plain;q=0.5"
    assert parse_head(head).accept == "application/openmetrics-text, text/plain;q=0.5"


def test_other_work_is_done_between_pipelined_requests() -> None:
    """The requests are in one segment, and the socket takes all responses, so that nothing has to be waited for."""
    count = 200

    async def main() -> int:
        async with endpoint() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            iterations = 0

            def count_iterations() -> None:
                nonlocal iterations
                iterations += 1
                asyncio.get_running_loop().call_soon(count_iterations)

            writer.write(GET.replace(b"/metrics", b"/healthz") * count)
            asyncio.get_running_loop().call_soon(count_iterations)
            async with asyncio.timeout(30):
                for _ in range(count):
                    await reader.readuntil(b"ok\n")
            writer.close()
            return iterations

    assert asyncio.run(main()) >= count


def test_refused_and_unread_connections_are_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kctl.server.metrics.endpoint.METRICS_SEND_MS_MAX", 100)
    monkeypatch.setattr("kctl.server.metrics.endpoint._CLIENT_WAIT_S", 60)

    async def large(accept: str) -> tuple[str, Sequence[bytes]]:
        return "text/plain", [bytes(1 << 20)] * 64

    async def main() -> None:
        async with endpoint(large) as port:
            with ExitStack() as stack:
                held = [
                    stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                    for _ in range(METRICS_CONNECTIONS_MAX + 1)
                ]
                held[0].sendall(GET)
                async with asyncio.timeout(30):
                    while True:
                        await asyncio.sleep(0)
                        if len(caplog.records) == 2:
                            break

    asyncio.run(main())
    messages = [record.getMessage() for record in caplog.records]
    # Without the port of the client, so that a thousand equal lines are folded into one.
    assert [message.partition(" peer=127.0.0.1 ")[0] for message in messages] == [
        "refusing a metrics connection, there are too many",
        "closing a metrics connection, its response was not made and read in time",
    ]
