"""The simulated disk behaves like a real one and fails on request."""

from __future__ import annotations

import errno
import random
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kctl.storage.files import Files, RealFiles
from kctl.testing.sim_files import SimFiles


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    """A disk with an empty directory on it."""
    if request.param == "real":
        return RealFiles(), str(tmp_path)
    files = SimFiles()
    files.make_directory("/data")
    return files, "/data"


def test_written_bytes_are_read_back(disk: tuple[Files, str]) -> None:
    files, at = disk
    file = files.open(f"{at}/a", create=True)
    file.write_at(0, b"abcdef")
    file.write_at(8, memoryview(b"xy"))
    assert file.read_at(0, 100) == b"abcdef\0\0xy"
    assert file.read_at(4, 2) == b"ef"
    assert file.read_at(50, 2) == b""
    file.truncate(3)
    file.truncate(5)
    assert (file.read_at(0, 9), file.size(), files.size(f"{at}/a")) == (b"abc\0\0", 5, 5)


def test_files_are_created_renamed_and_removed(disk: tuple[Files, str]) -> None:
    files, at = disk
    files.make_directory(f"{at}/d/e")
    files.make_directory(f"{at}/d/e")
    files.open(f"{at}/d/b", create=True).write_at(0, b"b")
    files.write_atomically(f"{at}/d/a", b"a")
    files.write_atomically(f"{at}/d/a", b"aa", sync=False)
    assert [(entry.name, entry.is_directory, entry.size) for entry in files.list(f"{at}/d")] == [
        ("a", False, 2),
        ("b", False, 1),
        ("e", True, 0),
    ]
    files.rename(f"{at}/d/b", f"{at}/d/a")
    assert files.read(f"{at}/d/a") == b"b"
    files.rename(f"{at}/d", f"{at}/moved")
    assert files.read(f"{at}/moved/a") == b"b"
    files.remove(f"{at}/moved/a")
    files.remove(f"{at}/moved/a")
    assert not files.exists(f"{at}/moved/a")
    files.remove_tree(f"{at}/moved")
    files.remove_tree(f"{at}/moved")
    assert files.list(at) == []


def test_an_open_file_outlives_its_name(disk: tuple[Files, str]) -> None:
    files, at = disk
    file = files.open(f"{at}/a", create=True)
    file.write_at(0, b"still here")
    files.rename(f"{at}/a", f"{at}/b")
    files.remove(f"{at}/b")
    assert file.read_at(0, 100) == b"still here"


def test_missing_files_are_an_error(disk: tuple[Files, str]) -> None:
    files, at = disk
    calls: list[Callable[[], object]] = [
        lambda: files.open(f"{at}/none"),
        lambda: files.open(f"{at}/none/a", create=True),
        lambda: files.read(f"{at}/none"),
        lambda: files.size(f"{at}/none"),
        lambda: files.modified_ms(f"{at}/none"),
        lambda: files.rename(f"{at}/none", f"{at}/b"),
        lambda: files.list(f"{at}/none"),
    ]
    for call in calls:
        with pytest.raises(FileNotFoundError):
            call()


def test_a_lock_is_exclusive_until_released(disk: tuple[Files, str]) -> None:
    files, at = disk
    lock = files.lock(f"{at}/.lock")
    with pytest.raises(BlockingIOError):
        files.lock(f"{at}/.lock")
    lock.release()
    lock.release()
    files.lock(f"{at}/.lock").release()


LOCK_AS_JAVA_DOES = """
import fcntl, sys
file = open(sys.argv[1], "w")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    sys.exit("refused")
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_real_lock_and_one_of_a_java_program_exclude_each_other(tmp_path: Path) -> None:
    path = tmp_path / ".lock"

    def java() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-ISc", LOCK_AS_JAVA_DOES, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    with java() as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(BlockingIOError):
            RealFiles().lock(str(path))
        holder.communicate()
    lock = RealFiles().lock(str(path))
    with java() as refused:
        assert refused.communicate()[1] == b"refused\n"
    lock.release()
    with java() as free:
        assert free.communicate()[0] == b"locked\n"


def test_the_time_of_a_file_can_be_set(disk: tuple[Files, str]) -> None:
    files, at = disk
    files.write_atomically(f"{at}/a", b"")
    files.set_modified_ms(f"{at}/a", 1_234_567_890_123)
    assert files.modified_ms(f"{at}/a") == 1_234_567_890_123


def test_the_nth_operation_and_all_after_it_fail() -> None:
    files = SimFiles()
    files.make_directory("/data")
    file = files.open("/data/a", create=True)
    files.fail_at(2, error=errno.ENOSPC)
    file.write_at(0, b"a")
    had_failed = files.has_failed
    with pytest.raises(OSError) as caught:
        file.write_at(1, b"b")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "/data/a")
    with pytest.raises(OSError):
        file.sync()
    assert (had_failed, files.has_failed) == (False, True)
    files.fail_at(None)
    assert file.read_at(0, 9) == b"a"


def test_power_failure_keeps_what_was_synced_and_a_prefix_of_the_rest() -> None:
    seen = set()
    for seed in range(200):
        files = SimFiles()
        files.make_directory("/data")
        file = files.open("/data/a", create=True)
        file.write_at(0, b"safe")
        file.sync()
        for letter in b"abc":
            file.write_at(file.size(), bytes([letter]) * 2)
        files.crash(random.Random(seed))
        seen.add(files.read("/data/a"))
    assert seen == {b"safe" + b"aabbcc"[:count] for count in range(7)}


def test_a_file_renamed_without_a_sync_may_be_empty_after_a_power_failure() -> None:
    contents = set()
    for seed in range(50):
        files = SimFiles()
        files.make_directory("/data")
        files.write_atomically("/data/a", b"x", sync=False)
        files.crash(random.Random(seed))
        contents.add(files.read("/data/a"))
    assert contents == {b"", b"x"}


def test_a_killed_process_loses_only_its_locks() -> None:
    files = SimFiles()
    files.make_directory("/data")
    files.lock("/data/.lock")
    files.open("/data/a", create=True).write_at(0, b"unsynced")
    files.kill()
    assert files.read("/data/a") == b"unsynced"
    files.lock("/data/.lock")


def test_threads_share_the_disk() -> None:
    """As those that open the logs of a directory do."""
    files, count = SimFiles(), 100
    interval_s = sys.getswitchinterval()

    def work(directory: str) -> list[str]:
        for number in range(count):
            files.make_directory(f"{directory}/{number}")
            files.open(f"{directory}/{number}/log", create=True).close()
            files.rename(f"{directory}/{number}", f"{directory}/kept{number}")
            files.remove_tree(f"{directory}/kept{number - 10}")
            assert files.list(f"{directory}/kept{number}")
        return [entry.name for entry in files.list(directory)]

    try:
        sys.setswitchinterval(1e-6)
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(work, ["/a", "/b", "/c", "/d"]))
    finally:
        sys.setswitchinterval(interval_s)
    assert found == [sorted(f"kept{number}" for number in range(count - 10, count))] * 4
