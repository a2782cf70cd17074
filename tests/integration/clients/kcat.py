"""kcat: librdkafka from the shell, without administration of topics, and consumers without a group."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping

from tests.integration.clients.family import TIMEOUT_S, Entry


def why_not() -> str | None:
    """The reason why kcat cannot run on this machine; None if it can."""
    return None if shutil.which("kcat") else "kcat is not on the PATH: install Debian's package kcat"


class Kcat:
    codecs: tuple[str, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
    settings: Mapping[str, str] = {}
    """Settings of all its clients, by librdkafka's names."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def produce(self, topic: str, records: list[tuple[bytes, bytes]], codec: str = "none") -> None:
        lines = "".join(f"{key.decode()}\t{value.decode()}\n" for key, value in records)
        self._run("-P", "-t", topic, "-K", "\t", "-z", codec, "-H", f"codec={codec}", "-X", "acks=all", stdin=lines)

    def consume(self, topic: str, count: int, group: str | None = None) -> list[Entry]:
        assert group is None, "kcat reads without a group here"
        output = self._run("-C", "-t", topic, "-o", "beginning", "-c", str(count), "-q", "-f", "%p\t%o\t%k\t%s\n")
        rows = [line.split("\t") for line in output.splitlines()]
        return [
            Entry(int(partition), int(offset), key.encode(), value.encode()) for partition, offset, key, value in rows
        ]

    def _run(self, *arguments: str, stdin: str = "") -> str:
        settings = {"broker.address.family": "v4", **self.settings}
        finished = subprocess.run(
            ["kcat", "-b", self.bootstrap, *(f"-X{name}={value}" for name, value in settings.items()), *arguments],
            check=False,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert finished.returncode == 0, finished.stderr
        return finished.stdout
