"""What a process writes about itself on SIGUSR1."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl.server.process import bundle
from kctl.server.process.bundle import DUMPED_TASKS_MAX

SECRET = "correct horse battery staple"


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """Restores the handler of the signal."""
    before = signal.getsignal(bundle.SIGNAL)
    yield
    signal.signal(bundle.SIGNAL, before)


async def wait_somewhere(event: asyncio.Event, password: str) -> None:
    assert password
    await wait_deeper(event)


async def wait_deeper(event: asyncio.Event) -> None:
    await event.wait()


def content_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def dump_of(path: Path, *, tasks: int = 1) -> str:
    """Starts tasks and a thread, and sends the signal while the event loop is busy: nothing is awaited after it."""

    async def run() -> str:
        event = asyncio.Event()
        waiting = [asyncio.create_task(wait_somewhere(event, SECRET), name=f"waits-{n}") for n in range(tasks)]
        await asyncio.sleep(0)
        end = threading.Event()
        thread = threading.Thread(target=end.wait, name="a-thread")
        thread.start()
        properties = {"num.partitions": "3", "ssl.key.password": SECRET, "plug.in": SECRET}
        bundle.write_on_signal(path, lambda: {"number": "7"}, properties)
        os.kill(os.getpid(), bundle.SIGNAL)
        text = content_of(path)
        end.set()
        thread.join()
        event.set()
        await asyncio.gather(*waiting)
        return text

    return asyncio.run(run())


def test_busy_process_writes_tasks_threads_and_properties(tmp_path: Path) -> None:
    lines = dump_of(tmp_path / "broker.dump").splitlines()
    assert "number=7" in lines
    assert lines[lines.index("[properties]") + 1 :][:3] == [
        "num.partitions=3",
        "plug.in=[hidden]",
        "ssl.key.password=[hidden]",
    ]
    task = lines.index("task waits-0")
    assert [line.split()[-1] for line in lines[task + 1 :][:3]] == ["wait_somewhere", "wait_deeper", "Event.wait"]
    assert "thread a-thread" in lines
    main = lines.index("thread MainThread")
    assert lines[main + 1].endswith("dump_of.<locals>.run")  # where the loop was, not the handler
    assert SECRET not in "\n".join(lines)


def test_only_the_owner_may_read_the_file_and_no_other_is_left(tmp_path: Path) -> None:
    path = tmp_path / "broker.dump"
    path.write_text("an earlier dump")
    path.chmod(0o644)
    assert dump_of(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_number_of_tasks_is_bounded(tmp_path: Path) -> None:
    text = dump_of(tmp_path / "broker.dump", tasks=DUMPED_TASKS_MAX + 20)
    assert text.count("task waits-") < DUMPED_TASKS_MAX + 1
    assert "\n21 more tasks\n" in text  # the test itself is one of them


def test_failure_to_write_does_not_disturb_the_process(tmp_path: Path) -> None:
    assert dump_of(tmp_path / "no such folder" / "broker.dump") == ""


def test_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("before")
    (tmp_path / "broker.dump.tmp").symlink_to(target)
    assert dump_of(tmp_path / "broker.dump") == ""
    assert target.read_text() == "before"
