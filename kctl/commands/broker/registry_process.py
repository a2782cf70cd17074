"""The schema registry of `kctl broker start --schema-registry-port`: `kctl registry serve` in a process of its own.

It ends with the broker, also if that is killed; a broker whose registry has ended stops.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from kctl.errors import KctlError
from kctl.output.quantities import PORT_MAX
from kctl.server.process.data_folder import DataFolder
from kctl.system.operating_system import module_command

_POLL_S = 0.02
_STOP_S = 10.0

SchemaRegistryPort = Annotated[
    int | None,
    typer.Option(
        "--schema-registry-port",
        metavar="N",
        help="Run a schema registry with Confluent's REST API on this port of 127.0.0.1, 0 for a free one.",
        max=PORT_MAX,
        min=0,
    ),
]


class RegistryProcess:
    """A registry, from when the broker serves."""

    def __init__(self, folder: DataFolder, port: int) -> None:
        """Remove the file with the URL of an earlier one."""
        self.problem: str | None = None
        """Why the registry does not serve, after its end."""
        self._port = port
        self._file = folder.path / "schema-registry.json"
        self._file.unlink(missing_ok=True)
        self._process: subprocess.Popen[bytes] | None = None
        self._stops = threading.Event()

    def start(
        self, bootstrap_servers: str, client_properties: Path | None, on_ready: Callable[[str], None], *, is_quiet: bool
    ) -> None:
        """Start it; `on_ready` gets the URL, in a thread.  A failure sends SIGTERM to this process."""
        words = ["registry", "serve", "--bootstrap-server", bootstrap_servers, "--port", str(self._port)]
        words += ["--ready-file", str(self._file), "--stop-with", str(os.getpid()), "--format", "table"]
        words += [] if client_properties is None else ["--command-config", str(client_properties)]
        words += ["--quiet"] if is_quiet else []
        self._process = subprocess.Popen(
            [*module_command("kctl"), *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        threading.Thread(target=self._watch, args=(self._process, on_ready), daemon=True).start()

    def _watch(self, process: subprocess.Popen[bytes], on_ready: Callable[[str], None]) -> None:
        try:
            while not self._file.exists() and process.poll() is None:
                time.sleep(_POLL_S)
            if process.poll() is None:
                on_ready(json.loads(self._file.read_text(encoding="utf-8"))["url"])
            status = process.wait()
            self.problem = f"the schema registry has ended with status {status}; its messages are above"
        except (KctlError, OSError, ValueError) as error:
            self.problem = str(error)
        if not self._stops.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    def stop(self) -> None:
        """End it.  Raises KctlError if it has ended before."""
        ended_before = None if self._stops.is_set() else self.problem
        self._stops.set()
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._file.unlink(missing_ok=True)
        if ended_before is not None:
            raise KctlError(ended_before)
