"""A damaged database is not served: one line names the file and a remedy, at start and while running."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from kctl.errors import ZooKeeperError
from kctl.zookeeper.embedded.server import EmbeddedZooKeeper
from kctl.zookeeper.embedded.store import DATABASE
from kctl.zookeeper.session import ZooKeeperSession

PAGE = 4096


async def filled(folder: Path) -> None:
    """A database of many pages, closed."""
    server = EmbeddedZooKeeper(folder)
    await server.start()
    session = ZooKeeperSession(server.connect)
    await session.start(10_000)
    for number in range(100):
        await session.create(f"/{number}", b"x" * 1000)
    await session.close()
    await server.stop()


def zero_pages(folder: Path) -> None:
    """All but the first page of the database."""
    path = folder / DATABASE
    with path.open("r+b") as file:
        file.seek(PAGE)
        file.write(bytes(path.stat().st_size - PAGE))


def test_start_on_a_damaged_database_is_one_line_and_status_1(tmp_path: Path) -> None:
    asyncio.run(filled(tmp_path))
    zero_pages(tmp_path)
    command = [sys.executable, "-m", "kctl", "broker", "zookeeper-start", "--data-dir", str(tmp_path), "--port", "0"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert f"{tmp_path / DATABASE} cannot be used: " in line
    assert "restore it from a backup, or choose another directory" in line
    assert "internal error" not in line


def test_broker_on_a_damaged_database_does_not_start(tmp_path: Path) -> None:
    folder = tmp_path / "zookeeper"
    folder.mkdir()
    asyncio.run(filled(folder))
    zero_pages(folder)
    command = [sys.executable, "-m", "kctl", "broker", "start", "--data-dir", str(tmp_path), "--port", "0"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert f"{folder / DATABASE} cannot be used: " in ended.stderr
    assert "internal error" not in ended.stderr


def test_damage_found_by_a_commit_stops_the_server(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        await filled(tmp_path)
        failed: asyncio.Future[ZooKeeperError] = asyncio.get_running_loop().create_future()
        server = EmbeddedZooKeeper(tmp_path, on_failure=failed.set_result)
        await server.start()
        session = ZooKeeperSession(server.connect)
        await session.start(10_000)
        zero_pages(tmp_path)
        # The page cache of SQLite would hide that until the pages are evicted.
        await server._in_writer(lambda: server._store._database.execute("PRAGMA shrink_memory"))
        writing = asyncio.ensure_future(session.set("/50", b"y" * 1000))
        async with asyncio.timeout(60):
            error = await failed
        assert str(error).startswith(f"{tmp_path / DATABASE} cannot be used: ")
        assert not writing.done() or isinstance(writing.exception(), ZooKeeperError)
        with pytest.raises(OSError, match="Connect call failed"):
            await asyncio.open_connection(server.host, server.port)
        await session.close()
        await asyncio.gather(writing, return_exceptions=True)
        await server.stop()

    with caplog.at_level(logging.ERROR, "kctl.zookeeper"):
        asyncio.run(main())
    (line,) = [record for record in caplog.records if "ZooKeeper server failed data=" in record.getMessage()]
    assert line.exc_info is None
