"""Every fallback for a call that not all systems have does the same as the call."""

from __future__ import annotations

import fcntl
import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from kctl.system import operating_system
from tests.peers.other_system import REMOVED, UNKNOWN_COMMAND

ROOT = Path(__file__).resolve().parents[2]
CONTENT = bytes(range(256)) * 2000
BOTH = pytest.mark.parametrize("is_native", [True, False])


@pytest.fixture
def source(tmp_path: Path) -> int:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    return os.open(path, os.O_RDWR)


def test_pages_are_not_shared_with_a_forked_process() -> None:
    pages = operating_system.private_pages(10_000)
    assert pages[:] == bytes(10_000)
    child = os.fork()
    if child == 0:
        pages[:] = b"x" * 10_000
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert pages[:] == bytes(10_000)


@BOTH
def test_file_is_sent_to_a_socket(source: int, monkeypatch: pytest.MonkeyPatch, is_native: bool) -> None:
    monkeypatch.setattr(operating_system, "_HAS_SENDFILE", is_native)
    near, far = socket.socketpair()
    near.setblocking(False)
    received = bytearray()
    position = 100
    while position < len(CONTENT):
        try:
            sent = operating_system.send_file(near.fileno(), source, position, len(CONTENT) - position)
        except BlockingIOError:
            received += far.recv(1 << 20)
            continue
        assert sent > 0
        position += sent
    assert operating_system.send_file(near.fileno(), source, len(CONTENT), 10) == 0
    near.close()
    while piece := far.recv(1 << 20):
        received += piece
    assert bytes(received) == CONTENT[100:]
    far.close()
    os.close(source)


@BOTH
def test_file_is_sent_to_a_peer_that_is_gone(source: int, monkeypatch: pytest.MonkeyPatch, is_native: bool) -> None:
    monkeypatch.setattr(operating_system, "_HAS_SENDFILE", is_native)
    near, far = socket.socketpair()
    far.close()
    with pytest.raises(BrokenPipeError):
        operating_system.send_file(near.fileno(), source, 0, 10)
    near.close()
    os.close(source)


@BOTH
def test_file_is_read_into_a_buffer(source: int, monkeypatch: pytest.MonkeyPatch, is_native: bool) -> None:
    monkeypatch.setattr(operating_system, "_HAS_PREADV", is_native)
    buffer = memoryview(bytearray(1000))
    assert operating_system.read_into(source, buffer[:500], 256) == 500
    assert bytes(buffer[:500]) == CONTENT[256:756]
    assert bytes(buffer[500:]) == bytes(500)
    assert operating_system.read_into(source, buffer, len(CONTENT) - 10) == 10
    os.close(source)


@BOTH
def test_private_file_is_gone_afterwards(monkeypatch: pytest.MonkeyPatch, is_native: bool) -> None:
    monkeypatch.setattr(operating_system, "_HAS_MEMORY_FILES", is_native)
    before = set(Path(tempfile.gettempdir()).iterdir())
    with operating_system.private_file(b"key") as path:
        assert Path(path).read_bytes() == b"key"
        if not is_native:
            assert Path(path).stat().st_mode & 0o777 == 0o600
    assert not Path(path).exists()
    left = set(Path(tempfile.gettempdir()).iterdir()) - before
    assert {other.name for other in left if other.samefile(path)} == set()


@pytest.mark.parametrize("command", [None, UNKNOWN_COMMAND, fcntl.F_GETFD])
def test_flush_uses_what_the_system_has(source: int, monkeypatch: pytest.MonkeyPatch, command: int | None) -> None:
    """F_GETFD stands for a full fsync that succeeds; then fsync is not needed."""
    flushed: list[int] = []
    monkeypatch.setattr(operating_system, "_FULL_FSYNC", command)
    monkeypatch.setattr(os, "fsync", flushed.append)
    operating_system.flush_to_disk(source)
    assert flushed == ([] if command == fcntl.F_GETFD else [source])
    os.close(source)


def test_a_file_system_is_synced_as_a_whole(source: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only of kinds that are known to report errors, and only if no call and no file reports one."""
    done: list[tuple[str, int]] = []
    mounted = os.fstat(source).st_dev
    other, numbers = os.open(tmp_path / "file", os.O_RDONLY), f"{os.major(mounted)}:{os.minor(mounted)}"
    (tmp_path / "self").mkdir()
    monkeypatch.setattr(operating_system, "_PROCESSES", tmp_path)
    monkeypatch.setattr(os, "fsync", lambda descriptor: done.append(("fsync", descriptor)))

    def result(kind: str, *, failing: str = "") -> tuple[bool, list[tuple[str, int]]]:
        def call(name: str, descriptor: int) -> int:
            done.append((name, descriptor))
            return -1 if name == failing else 0

        (tmp_path / "self/mountinfo").write_text(f"25 1 {numbers} / / rw,noatime shared:1 - {kind} /dev/vda rw\n")
        calls = (partial(call, "sync"), partial(call, "check"))
        monkeypatch.setattr(operating_system, "_file_system_calls", lambda: None if failing == "old" else calls)
        done.clear()
        return operating_system.sync_file_systems([source, other]), done.copy()

    checked = [("sync", source), ("check", source), ("check", other)]
    assert result("ext4") == (True, [*checked, ("fsync", source)])
    assert result("overlay") == (False, [])
    assert result("ext4", failing="sync") == (False, checked[:1])
    assert result("ext4", failing="check") == (False, checked[:2])
    assert result("ext4", failing="old") == (False, [])
    os.close(source)
    assert result("ext4")[0] is False
    os.close(other)


@pytest.mark.parametrize(
    ("release", "has_calls"), [("5.7.19", False), ("5.8.0-rc1", True), ("6.18.44-x", True), ("unknown", False)]
)
def test_old_kernels_do_not_sync_file_systems(monkeypatch: pytest.MonkeyPatch, release: str, has_calls: bool) -> None:
    """They do not report that the data of a file could not be written."""
    calls = operating_system._file_system_calls.__wrapped__
    is_supported = sys.platform == "linux" and calls() is not None
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release=release))
    assert (calls() is not None) is (is_supported and has_calls)


def test_flush_reports_failures(source: int) -> None:
    os.close(source)
    with pytest.raises(OSError, match="Bad file descriptor"):
        operating_system.flush_to_disk(source)


@pytest.mark.parametrize(
    ("highest", "expected"), [(1 << 30, resource.RLIM_INFINITY), (24_576, 10_240), (300_000, 1 << 18), (100, 256)]
)
def test_open_files_where_the_hard_limit_is_infinite(
    monkeypatch: pytest.MonkeyPatch, highest: int, expected: int
) -> None:
    """macOS has a soft limit of 256 and refuses more than kern.maxfilesperproc; 1 << 30 stands for no such limit."""
    limits = [256, resource.RLIM_INFINITY]

    def setrlimit(_: int, wanted: tuple[int, int]) -> None:
        if wanted[0] > highest or (wanted[0] == resource.RLIM_INFINITY and highest != 1 << 30):
            raise ValueError("current limit exceeds maximum limit")
        limits[:] = wanted

    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    reported = operating_system.raise_open_files_limit()
    assert limits[0] == expected
    assert reported == (-1 if expected == resource.RLIM_INFINITY else expected)


@BOTH
def test_at_least_one_processor_is_usable(is_native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_native:
        monkeypatch.setattr(operating_system, "_HAS_AFFINITY", False)
    assert 1 <= operating_system.usable_processors() <= (os.cpu_count() or 1)


@pytest.mark.skipif(not hasattr(socket, "MSG_MORE"), reason="this system has no MSG_MORE, so that there is no number")
def test_number_of_the_flag_is_that_of_this_system() -> None:
    assert operating_system.MSG_MORE == socket.MSG_MORE


def test_what_only_linux_counts_is_unknown_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(operating_system, "_PROCESSES", tmp_path)
    assert operating_system.disk_bytes() is None
    with pytest.raises(FileNotFoundError):
        operating_system.list_open_files(os.getpid())


@pytest.mark.long
def test_only_one_module_uses_what_not_all_systems_have() -> None:
    names = [name for of_module in REMOVED.values() for name in of_module]
    names += ["sendfile", "F_FULLFSYNC", "RLIMIT_NOFILE"]
    of_modules = "|".join(names)
    modules = "|".join(module.__name__ for module in (*REMOVED, fcntl))
    pattern = re.compile(rf"\b(?:{modules})\.(?:{of_modules})\b|\bsys\.platform|\"/proc/")
    users = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "kctl").rglob("*.py")
        if any(pattern.search(line.partition("#")[0]) for line in path.read_text().splitlines())
    }
    assert users == {"kctl/system/operating_system.py"}


def test_large_blocks_are_returned_to_the_system_also_after_larger_ones() -> None:
    program = """
import os
from kctl.system.operating_system import LARGE_BLOCK_BYTES, limit_freed_memory

def resident_bytes():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

assert limit_freed_memory()
largest = b"x" * (16 << 20)
del largest
before = resident_bytes()
# Small blocks between large ones keep the large ones from being at the end of the heap.
blocks = [(b"x" * (2 * LARGE_BLOCK_BYTES), b"x" * 5_000) for _ in range(30)]
small = [each for _, each in blocks]
del blocks
print(resident_bytes() - before)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 20 * operating_system.LARGE_BLOCK_BYTES


def test_memory_that_a_thread_has_freed_can_be_returned_to_the_system() -> None:
    program = """
import threading
from kctl.system.operating_system import heap_trim, limit_freed_memory, resident_bytes

assert limit_freed_memory()
before = resident_bytes()

def use():
    blocks = [None] * 100
    for at in range(len(blocks)):
        blocks[at] = b"x" * 60_000

thread = threading.Thread(target=use)
thread.start()
thread.join()
kept = resident_bytes()
heap_trim()()
print(kept - before, resident_bytes() - before)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    kept, left = map(int, ran.stdout.split())
    assert kept > 5_000_000
    assert left < 2_000_000


def test_memory_of_a_request_is_used_again_by_the_next_one() -> None:
    program = """
import resource
import threading
from kctl.system.operating_system import limit_freed_memory

assert limit_freed_memory()
faults = []

def use():
    for _ in range(20):
        blocks = [b"x" * 3_000_000 for _ in range(5)]
        del blocks
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)

thread = threading.Thread(target=use)
thread.start()
thread.join()
print((faults[-1] - faults[0]) * resource.getpagesize())
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 15_000_000, "as much as one of the 19 later requests uses"
