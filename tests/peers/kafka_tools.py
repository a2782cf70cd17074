"""Kafka's command-line tools in a JVM that stays: the start of a JVM takes most of the CPU time of a tool."""

from __future__ import annotations

import atexit
import contextlib
import io
import signal
import struct
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

PROGRAM = Path(__file__).with_name("KafkaTools.java")
NUMBER = struct.Struct(">i")
NOISE = "SLF4J: "


class KafkaTools:
    """Runs one tool at a time.  It has the environment and the folder of the tests when the first tool was run."""

    def __init__(self, command: Sequence[str]) -> None:
        """`command` runs `PROGRAM`."""
        self._turn = threading.Lock()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the JVM
        self._jvm = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True
        )
        atexit.register(self._end)

    def run(self, words: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
        """The output of a class with these arguments.

        Raises subprocess.TimeoutExpired, and ConnectionError if the tool has ended the JVM; it is then of no more use.
        """
        with self._turn:
            too_late = threading.Timer(timeout_s, self._jvm.kill)
            too_late.start()
            try:
                return self._run(words)
            except (BrokenPipeError, EOFError):
                if self._jvm.wait() == -signal.SIGKILL:
                    raise subprocess.TimeoutExpired(list(words), timeout_s) from None
                self._errors.seek(0)
                raise ConnectionError(self._errors.read().decode(errors="replace")) from None
            finally:
                too_late.cancel()

    def _end(self) -> None:
        self._jvm.kill()
        self._jvm.wait()
        for stream in (self._jvm.stdin, self._jvm.stdout, self._errors):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    @property
    def is_running(self) -> bool:
        return self._jvm.poll() is None

    def _run(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        requests = self._jvm.stdin
        assert requests is not None
        encoded = [word.encode() for word in words]
        requests.write(NUMBER.pack(len(encoded)) + b"".join(NUMBER.pack(len(word)) + word for word in encoded))
        requests.flush()
        status = self._number()
        out, err = self._text(), self._text()
        err = "".join(line for line in err.splitlines(keepends=True) if not line.startswith(NOISE))
        return subprocess.CompletedProcess(list(words), status, out, err)

    def _number(self) -> int:
        (number,) = NUMBER.unpack(self._read(NUMBER.size))
        return int(number)

    def _text(self) -> str:
        """With the ends of lines as in the output of other processes that Python reads as text."""
        with io.TextIOWrapper(io.BytesIO(self._read(self._number())), "utf-8") as text:
            return text.read()

    def _read(self, count: int) -> bytes:
        assert self._jvm.stdout is not None
        read = self._jvm.stdout.read(count)
        if len(read) < count:
            raise EOFError
        return read
