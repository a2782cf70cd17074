"""Standard streams that are closed, full, gone, or non-blocking: output that was not written is never success."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl.cli import main
from kctl.system.standard_streams import CannotWrite, ReaderLeft, standard_streams

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def stdout_on(descriptor: int, *, buffering: int = -1, write_through: bool = False) -> Iterator[None]:
    """Standard output of this process is the descriptor, which is closed at the end."""
    before = sys.stdout
    binary = open(descriptor, "wb", buffering=buffering)  # noqa: SIM115 - closed by the text stream
    with io.TextIOWrapper(binary, encoding="utf-8", write_through=write_through) as stream:
        sys.stdout = stream
        try:
            with standard_streams():
                yield
        finally:
            sys.stdout = before


def test_non_blocking_stdout_gets_everything() -> None:
    text = "".join(f"{number:07}\n" for number in range(50_000))
    for buffering, write_through in ((-1, False), (0, True)):
        reading, writing = os.pipe()
        fcntl.fcntl(writing, fcntl.F_SETFL, os.O_NONBLOCK)
        received: list[bytes] = []

        def read(descriptor: int = reading, into: list[bytes] = received) -> None:
            while data := os.read(descriptor, 1000):
                into.append(data)

        thread = threading.Thread(target=read)
        with stdout_on(writing, buffering=buffering, write_through=write_through):
            thread.start()
            sys.stdout.write(text)
            sys.stdout.flush()
        thread.join()
        os.close(reading)
        assert b"".join(received).decode() == text, (buffering, write_through)


def test_failures_of_stdout_name_it() -> None:
    primary, secondary = os.openpty()
    os.close(primary)
    without_reader = os.pipe()
    os.close(without_reader[0])
    cases: list[tuple[int, type[OSError], str]] = [
        (os.open("/dev/full", os.O_WRONLY), CannotWrite, "cannot write to stdout: No space left on device"),
        (os.open("/dev/null", os.O_RDONLY), CannotWrite, "cannot write to stdout: Bad file descriptor"),
        (secondary, CannotWrite, "cannot write to stdout: Input/output error"),
        (without_reader[1], ReaderLeft, "Broken pipe"),
    ]
    for descriptor, kind, text in cases:
        with stdout_on(descriptor):
            sys.stdout.write("row\n")
            with pytest.raises(kind, match=text):
                sys.stdout.flush()


def test_broken_connection_is_not_taken_for_a_reader_that_has_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> int:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("kctl.cli._run", fail)
    assert main(["topics", "list"]) == 1
    assert capsys.readouterr().err == "kctl: Broken pipe\n"


@pytest.mark.long
def test_streams_that_were_closed_at_the_start() -> None:
    """Redirection -> status, and the message where stderr is open."""
    cannot = "kctl: cannot write to stdout: Bad file descriptor\n"
    for line, redirection, status, message in (
        ("--version", ">&-", 1, cannot),
        ("--help", ">&-", 1, cannot),
        ("completion bash", ">&-", 1, cannot),
        ("completion bash", ">&- 2>&-", 1, ""),
        ("completion bash", "<&- >&- 2>&-", 1, ""),
        ("--version", "2>&- <&-", 0, ""),
        ("topics list --nope", "2>/dev/full", 2, ""),
        ("topics describe -", "<&-", 1, "kctl: standard input: Bad file descriptor\n"),
    ):
        command = f"{sys.executable} -m kctl {line} {redirection}"
        ran = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (status, message), (line, redirection, ran)
