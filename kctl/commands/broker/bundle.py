"""`kctl broker bundle`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

import typer

from kctl.admin.metrics import scrape
from kctl.commands.broker.data_dir import DataDir, data_dir_of
from kctl.commands.command import LocalCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.shown import shows_one
from kctl.config.redaction import redacted, secrets_of
from kctl.errors import ClusterUnreachable, KctlError, UsageError
from kctl.integers import INT32_MAX
from kctl.limits import BUNDLE_FILE_BYTES_MAX, BUNDLE_METRICS_BYTES_MAX
from kctl.operating_system import open_files_of
from kctl.server.bundle import Missing, Part, machine_parts, redactor, tail, write_archive
from kctl.server.data_folder import DataFolder, RunningBroker, brokers_in
from kctl.server.state_dump import SIGNAL

app = typer.Typer(add_completion=False)

_DUMP_WAIT_S = 10.0
_METRICS_WAIT_S = 30.0
_POLL_S = 0.05


class MissingRow(NamedTuple):
    """A part that the archive does not have."""

    name: str
    message: str


class BundleItem(NamedTuple):
    """The archive."""

    file: str
    bytes: int
    parts: int
    missing: list[MissingRow]


class BundleOverview(NamedTuple):
    """The archive, for people."""

    file: str
    bytes: int
    parts: int
    missing: str


@app.command(
    "bundle",
    cls=LocalCommand,
    epilog=examples(
        "kctl broker bundle",
        "kctl broker bundle --data-dir /srv/kafka --config server.properties --output report.tar.gz",
        "kctl broker bundle --pid 4711 --log /var/log/kctl.log",
    ),
)
@shows_one(BundleItem)
def bundle(
    ctx: typer.Context,
    *,
    data_dir: DataDir = None,
    pid: Annotated[
        int | None,
        typer.Option("--pid", metavar="N", help="Process of the broker, instead of --data-dir.", min=1, max=INT32_MAX),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config", metavar="FILE", help="The broker's server.properties; its secrets are hidden everywhere."
        ),
    ] = None,
    log: Annotated[
        list[str] | None, typer.Option("--log", metavar="FILE", help="Another file with the output of the broker.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", metavar="FILE", help="The archive.  Default: kctl-bundle-TIME.tar.gz in this folder."),
    ] = None,
) -> ExitStatus:
    """Write one archive for a bug report about a broker.

    The archive contains versions, properties, the end of the log, metrics, the tasks and threads of the running broker,
    a listing of its directories with sizes, checkpoints and meta.properties.  It contains no records, and passwords are
    hidden.  It contains names of hosts, topics and files.  Only its owner can read it; review it before you send it.

    The broker may run or not.  With --processes it contains all brokers of the service.
    """
    run: Invocation = ctx.obj
    if pid is not None and data_dir is not None:
        raise UsageError("--pid and --data-dir contradict each other: give one of them")
    folder = DataFolder(data_dir_of(data_dir) if pid is None else _folder_of(pid))
    if not folder.path.is_dir():
        raise UsageError(f"{folder.path} does not exist: give the data folder of a broker with --data-dir")
    properties = run.secret_properties(config) if config is not None else {}
    running = folder.running()
    named = properties.get("log.dirs") or properties.get("log.dir") or ""
    log_dirs = [each.strip() for each in named.split(",") if each.strip()]
    several = [(each, there) for each, there in brokers_in(folder) if each.path != folder.path]
    if several:
        log_dirs = [directory for each, there in several for directory in _log_dirs(each, there)]
    log_dirs = log_dirs or _log_dirs(folder, running)
    now = datetime.now(UTC)
    path = Path(output or f"kctl-bundle-{now:%Y%m%d-%H%M%S}.tar.gz").expanduser()
    parts = [
        *_broker_parts(folder, running, properties if config is not None else None),
        *(
            part._replace(name=f"{each.path.name}/{part.name}")
            for each, there in several
            for part in _broker_parts(each, there, None)
        ),
        *machine_parts(folder.path, log_dirs, [folder.output, *map(Path, log or [])]),
    ]
    try:
        results = write_archive(path, parts, redactor(secrets_of(properties)))
    except OSError as error:
        raise KctlError(f"{path} cannot be written: {error.strerror}; choose another file with --output") from None
    missing = [MissingRow(each.name, each.problem) for each in results if each.problem is not None]
    item = BundleItem(str(path), path.stat().st_size, len(results) - len(missing), missing)
    if run.console.is_machine_readable:
        run.console.show_one(item)
    else:
        shown = "; ".join(f"{name} ({message})" for name, message in missing)
        run.console.show_one(BundleOverview(item.file, item.bytes, item.parts, shown))
    return ExitStatus.DONE


def _log_dirs(folder: DataFolder, running: RunningBroker | None) -> list[str]:
    return list(running.log_dirs if running else ()) or [str(folder.logs)]


def _broker_parts(
    folder: DataFolder, running: RunningBroker | None, properties: dict[str, str] | None
) -> Iterator[Part]:
    def dump() -> str:
        if running is None:
            raise Missing("the broker does not run")
        _request_dump(folder, running)
        return tail(folder.dump, BUNDLE_FILE_BYTES_MAX)

    def metrics() -> str:
        if running is None or not running.metrics_url:
            raise Missing("there is no endpoint for metrics")
        url = urlsplit(running.metrics_url)
        assert url.hostname is not None
        assert url.port is not None
        host = "127.0.0.1" if url.hostname == "0.0.0.0" else url.hostname  # noqa: S104 - compared
        end_s = monotonic() + _METRICS_WAIT_S
        try:
            return scrape(host, url.port, lambda: end_s - monotonic(), bytes_max=BUNDLE_METRICS_BYTES_MAX)
        except ClusterUnreachable as error:
            raise Missing(str(error)) from None

    yield Part("tasks-and-threads.txt", dump)
    yield Part("metrics.txt", metrics)
    yield Part("broker.json", lambda: tail(folder.path / "broker.json", BUNDLE_FILE_BYTES_MAX))
    if properties is not None:
        text = "".join(f"{name}={value}\n" for name, value in redacted(properties).items())
        yield Part("server.properties", lambda: text)


def _request_dump(folder: DataFolder, running: RunningBroker) -> None:
    """Sends the signal, and waits until the broker has written its dump.  Raises Missing."""
    if not running.version:
        raise Missing("this version of the broker does not write a dump of its state")
    before = _identity(folder.dump)
    try:
        os.kill(running.pid, SIGNAL)
    except OSError as error:
        raise Missing(f"no signal may be sent to process {running.pid}: {error.strerror}") from None
    end_s = monotonic() + _DUMP_WAIT_S
    while _identity(folder.dump) == before:
        if monotonic() > end_s:
            raise Missing(f"the broker has not written the dump of its state in {_DUMP_WAIT_S:.0f} s")
        sleep(_POLL_S)


def _identity(path: Path) -> tuple[int, int] | None:
    """Changes whenever the file is replaced."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _folder_of(pid: int) -> Path:
    """The data folder of a process: the folder of the lock file that it has open.  Raises UsageError."""
    try:
        opened = open_files_of(pid)
    except OSError as error:
        raise UsageError(f"--pid {pid}: its open files cannot be listed: {error.strerror}; use --data-dir") from None
    for path in map(Path, opened):
        if path.name == "broker.lock":
            return path.parent
    raise UsageError(f"--pid {pid}: the process is not a kctl broker")
