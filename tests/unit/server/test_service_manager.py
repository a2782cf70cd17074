"""Notifications to the service manager, received on real datagram sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl.server.process.service_manager import ServiceManager, ServiceSettings
from tests.rows import for_rows

PID = 4711


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket of a service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(str(tmp_path / "notify"))
        bound.settimeout(60)
        yield bound


def received(manager: socket.socket) -> list[str]:
    return manager.recv(1 << 16).decode().split("\n")


def test_state_of_the_broker_is_sent_in_order(manager: socket.socket) -> None:
    settings = ServiceSettings.take({"NOTIFY_SOCKET": manager.getsockname()}, PID)

    async def run() -> None:
        service = ServiceManager(settings)
        await service.ready("serving on 127.0.0.1:9092")
        await service.stopping()
        await service.close()

    asyncio.run(run())
    assert received(manager) == ["READY=1", "STATUS=serving on 127.0.0.1:9092"]
    assert received(manager) == ["STOPPING=1", "STATUS=stopping"]
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(1)


def test_watchdog_is_sent_by_the_event_loop_until_the_end(manager: socket.socket) -> None:
    environment = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "20000", "WATCHDOG_PID": str(PID)}
    settings = ServiceSettings.take(environment, PID)
    assert settings.watchdog_ms == 20

    async def run() -> list[list[str]]:
        service = ServiceManager(settings)
        await service.ready("serving")
        messages = [await asyncio.to_thread(received, manager) for _ in range(4)]
        await service.stopping()
        while (message := await asyncio.to_thread(received, manager)) == ["WATCHDOG=1"]:
            pass
        messages.append(message)
        messages.append(await asyncio.to_thread(received, manager))
        await service.close()
        return messages

    assert asyncio.run(run()) == [
        ["READY=1", "STATUS=serving"],
        *[["WATCHDOG=1"]] * 3,
        ["STOPPING=1", "STATUS=stopping"],
        ["WATCHDOG=1"],
    ]


def test_watchdog_waits_for_a_loop_that_is_busy(manager: socket.socket) -> None:
    """No message arrives while the loop runs something else, so that the service manager can detect it."""
    environment = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "2000"}

    async def run() -> None:
        service = ServiceManager(ServiceSettings.take(environment, PID))
        await service.ready("serving")
        assert received(manager)[0] == "READY=1"  # This call, and the next, block the loop.
        manager.settimeout(0.1)  # Fifty intervals.
        with pytest.raises(TimeoutError):
            received(manager)
        manager.settimeout(60)
        assert await asyncio.to_thread(received, manager) == ["WATCHDOG=1"]
        await service.close()

    asyncio.run(run())


def test_settings_are_removed_from_the_environment() -> None:
    environment = {"NOTIFY_SOCKET": "/run/notify", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1", "PATH": "/bin"}
    ServiceSettings.take(environment, PID)
    assert environment == {"PATH": "/bin"}


@for_rows(
    "environment, settings",
    [
        ({}, ServiceSettings(None, None)),
        ({"NOTIFY_SOCKET": ""}, ServiceSettings(None, None)),
        ({"NOTIFY_SOCKET": "vsock:2:1234", "WATCHDOG_USEC": "60000000"}, ServiceSettings(None, None)),
        ({"NOTIFY_SOCKET": "@name"}, ServiceSettings("\0name", None)),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "60000000"}, ServiceSettings("/n", 60_000)),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, ServiceSettings("/n", None)),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "soon"}, ServiceSettings("/n", None)),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "-1"}, ServiceSettings("/n", None)),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "0"}, ServiceSettings("/n", None)),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "1" * 5000}, ServiceSettings("/n", None)),
    ],
)
def test_environment_is_read_as_by_systemd(environment: dict[str, str], settings: ServiceSettings) -> None:
    assert ServiceSettings.take(environment, PID) == settings


@pytest.mark.parametrize("address", ["/no/such/socket", "/" + "x" * 200])
def test_unusable_socket_is_reported_and_ignored(address: str, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        service = ServiceManager(ServiceSettings(address, 1000))
        await service.ready("serving")
        await service.stopping()
        await service.close()

    asyncio.run(run())
    assert "NOTIFY_SOCKET is ignored" in caplog.text


def test_service_manager_that_is_gone_does_not_stop_the_broker(
    manager: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        service = ServiceManager(ServiceSettings(manager.getsockname(), None))
        manager.close()
        await service.ready("serving")
        await service.close()

    asyncio.run(run())
    assert "cannot notify the service manager message=READY=1" in caplog.text
