"""What `kctl broker start` tells other programs when the broker serves."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from kctl.commands.frame.invocation import Invocation
from kctl.errors import KctlError, UsageError
from kctl.output.quantities import INT32_MAX
from kctl.server.process.data_folder import DataFolder, brokers_in
from kctl.system.user_files import replace_private

_FIRST_FREE_DESCRIPTOR = 3

ReadyFile = Annotated[
    str | None,
    typer.Option("--ready-file", metavar="FILE", help="Write the addresses to this file when the broker serves."),
]
ReadyDescriptor = Annotated[
    int | None,
    typer.Option(
        "--ready-fd",
        metavar="N",
        help="Write the addresses to this file descriptor when the broker serves, and close it.",
        min=_FIRST_FREE_DESCRIPTOR,
        max=INT32_MAX,
    ),
]


class ServingItem(NamedTuple):
    """A broker, or with --processes several, from when connections are accepted."""

    bootstrap_servers: Annotated[str, "HOST:PORT of each broker, separated by commas."]
    listeners: Annotated[dict[str, str], "HOST:PORT by the name of the listener; with --processes of the first broker."]
    broker_id: int
    pid: int
    zookeeper: str
    data_dir: str
    metrics_url: Annotated[str | None, "The endpoint for metrics; null without one."]
    schema_registry_url: Annotated[str | None, "With --schema-registry-port."]
    client_properties: Annotated[str | None, "With --secure: the file for --command-config of clients."]


class Readiness:
    """Where to write that the broker serves: standard output with a format for programs, a file, a descriptor."""

    def __init__(self, file: str | None, descriptor: int | None) -> None:
        """Remove a file that an earlier broker has left.  Raises UsageError for what cannot be written."""
        self._file = None if file is None else Path(file).absolute()
        self._descriptor = descriptor
        if self._file is not None:
            try:
                self._file.unlink(missing_ok=True)
            except OSError as error:
                raise UsageError(f"--ready-file {file}: {error.strerror}") from None
            if not os.access(self._file.parent, os.W_OK | os.X_OK):
                raise UsageError(f"--ready-file {file}: files cannot be created in {self._file.parent}")
        if descriptor is not None:
            try:
                os.set_inheritable(descriptor, False)
            except OSError:
                raise UsageError(f"--ready-fd {descriptor}: this process has no such file descriptor") from None

    def tell(
        self, run: Invocation, folder: DataFolder, client_properties: Path | None, registry_url: str | None = None
    ) -> None:
        """Write the addresses of the brokers of a folder, which serve now.  Raises KctlError."""
        serving = [running for _, running in brokers_in(folder) if running is not None]
        service = folder.running() or serving[0]
        item = ServingItem(
            bootstrap_servers=",".join(running.address for running in serving),
            listeners=dict(serving[0].listeners),
            broker_id=serving[0].broker_id,
            pid=service.pid,
            zookeeper=serving[0].zookeeper,
            data_dir=str(folder.path),
            metrics_url=service.metrics_url or None,
            schema_registry_url=registry_url,
            client_properties=None if client_properties is None else str(client_properties),
        )
        data = (json.dumps(item._asdict()) + "\n").encode()
        if self._file is not None:
            try:
                replace_private(self._file, data, is_durable=False)
            except OSError as error:
                raise KctlError(f"--ready-file {self._file} cannot be written: {error.strerror}") from None
        if self._descriptor is not None:
            with suppress(OSError), os.fdopen(self._descriptor, "wb", buffering=0) as stream:
                stream.write(data)
            self._descriptor = None
        if run.console.is_machine_readable:
            run.console.outlive_reader()
            run.console.show_one(item)
            sys.stdout.flush()  # The broker runs on.
