"""`kctl broker`: check, bundle."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

import typer

from kctl.admin.cluster.metrics import scrape
from kctl.commands.broker.start import (
    ConfigFile,
    DataDir,
    Overrides,
    Port,
    PortStep,
    Processes,
    data_dir_of,
    machine_of,
    overrides_of,
)
from kctl.commands.frame.command import LocalCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.output.shown import shows, shows_one
from kctl.commands.frame.profiles.secrets import exposed_files, read_properties
from kctl.config.redaction import collect_secrets, redacted
from kctl.errors import ClusterUnreachable, KctlError, UsageError
from kctl.limits import BUNDLE_FILE_BYTES_MAX, Subject, bound
from kctl.output.console import Column, Format
from kctl.output.quantities import INT32_MAX, counted
from kctl.server.process.bundle import SIGNAL, Missing, Part, machine_parts, redactor, tail, write_archive
from kctl.server.process.data_folder import DataFolder, RunningBroker, brokers_in
from kctl.server.process.machine.layout import unexpected_data
from kctl.server.process.preflight import Finding, Severity, findings
from kctl.server.process.starting import StartOptions
from kctl.system.operating_system import list_open_files

BUNDLE_METRICS_BYTES_MAX = bound(
    Subject.REPORTS,
    "metrics in the archive of `kctl broker bundle`",
    16 << 20,
    "bytes",
    on_excess="the archive has no metrics, and its overview has the reason",
)
_POLL_S = 0.05


verbs = typer.Typer(add_completion=False)


# `kctl broker check`.


_WARNING, _ERROR = "warning", "error"


class FindingRow(NamedTuple):
    """A problem of the configuration or of the machine."""

    severity: str
    subject: str
    message: Annotated[str, Column(wraps=True)]


@verbs.command(
    "check",
    cls=LocalCommand,
    epilog=examples(
        "kctl broker check --config server.properties",
        "kctl broker check --config server.properties --data-dir /srv/kafka --connect --strict",
        "kctl broker check --config server.properties --processes 4",
        "kctl broker check --config server.properties --format json",
    ),
)
@shows(FindingRow)
def check(
    ctx: typer.Context,
    *,
    config: ConfigFile = None,
    override: Overrides = None,
    data_dir: DataDir = None,
    port: Port = None,
    processes: Processes = None,
    port_step: PortStep = None,
    connect: Annotated[
        bool, typer.Option("--connect", help="Also connect to ZooKeeper and compare the ids of cluster and broker.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with status 3 for warnings too.")] = False,
) -> ExitStatus:
    """Check whether a broker could start with these properties, and list every problem, without starting it.

    Reads the properties, the key stores and the log directories, and binds the ports briefly.  An error is a
    reason why the broker would not start; a warning names what it would ignore or what is risky.  No row: no problem.

    The exit status is 3 if there is an error.
    """
    run: Invocation = ctx.obj
    options = StartOptions(
        folder=DataFolder(data_dir_of(data_dir)),
        file_properties=read_properties(config) if config is not None else {},
        overrides=overrides_of(override or [], port=port),
    )
    rows = [
        FindingRow(_WARNING, path, "contains secrets, and every user can read it; run chmod 600 on it")
        for path in exposed_files(config or "", options.given)
    ]
    machine = machine_of(options, processes, port_step)
    checked = [options] if machine is None else machine.processes()
    found = dict.fromkeys(asyncio.run(_findings(options, checked, processes, connects=connect)))
    rows += [FindingRow(finding.severity.value, finding.subject, finding.message) for finding in found]
    # The errors first, each kind in the order of the checks.
    rows.sort(key=lambda row: row.severity != _ERROR)
    if rows or run.console.format not in {Format.TABLE, Format.PLAIN}:
        run.console.show(FindingRow, rows)
    errors = sum(row.severity == _ERROR for row in rows)
    run.console.note(f"{counted(errors, 'error')}, {counted(len(rows) - errors, 'warning')}")
    return ExitStatus.UNMET if errors or (strict and rows) else ExitStatus.DONE


async def _findings(
    service: StartOptions, checked: list[StartOptions], processes: int | None, *, connects: bool
) -> list[Finding]:
    problem = unexpected_data(service.folder, processes, service.given)
    of_folder = [] if problem is None else [Finding(Severity.ERROR, str(service.folder.path), problem)]
    return [*of_folder, *[finding for options in checked async for finding in findings(options, connects=connects)]]


# `kctl broker bundle`.


_DUMP_WAIT_S = 10.0
_METRICS_WAIT_S = 30.0
_SNAPSHOT_MS = 10_000


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


@verbs.command(
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
    a listing of its directories with sizes, checkpoints, meta.properties, and the state of the cluster for 'kctl doctor
    --from'.  It contains no records, and passwords are
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
    log_dirs = [element.strip() for element in named.split(",") if element.strip()]
    several = [
        (broker_folder, there) for broker_folder, there in brokers_in(folder) if broker_folder.path != folder.path
    ]
    if several:
        log_dirs = [directory for broker_folder, there in several for directory in _log_dirs(broker_folder, there)]
    log_dirs = log_dirs or _log_dirs(folder, running)
    now = datetime.now(UTC)
    path = Path(output or f"kctl-bundle-{now:%Y%m%d-%H%M%S}.tar.gz").expanduser()
    parts = [
        *_broker_parts(folder, running, properties if config is not None else None),
        *(
            part._replace(name=f"{broker_folder.path.name}/{part.name}")
            for broker_folder, there in several
            for part in _broker_parts(broker_folder, there, None)
        ),
        Part("doctor.json", lambda: _snapshot(running or next((there for _, there in several if there), None))),
        *machine_parts(folder.path, log_dirs, [folder.output, *map(Path, log or [])]),
    ]
    try:
        results = write_archive(path, parts, redactor(collect_secrets(properties)))
    except OSError as error:
        raise KctlError(f"{path} cannot be written: {error.strerror}; choose another file with --output") from None
    missing = [MissingRow(result.name, result.problem) for result in results if result.problem is not None]
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


def _snapshot(running: RunningBroker | None) -> str:
    """Return the state of the cluster, for `kctl doctor --from`.  Raises Missing."""
    if running is None:
        raise Missing("the broker does not run")
    from kctl.admin.cluster.opening import open_cluster  # noqa: PLC0415 - only for an archive
    from kctl.admin.doctor.reading import take_snapshot  # noqa: PLC0415 - same
    from kctl.admin.doctor.snapshot import document_of  # noqa: PLC0415 - same

    async def take() -> str:
        async with open_cluster(running.address, timeout_ms=_SNAPSHOT_MS) as client:
            return json.dumps(document_of(await take_snapshot(client, None, timeout_ms=_SNAPSHOT_MS)), indent=1) + "\n"

    try:
        return asyncio.run(take())
    except KctlError as error:
        raise Missing(
            f"{error}; for listeners with TLS or SASL, add the output of 'kctl doctor --snapshot --command-config FILE'"
        ) from None


def _request_dump(folder: DataFolder, running: RunningBroker) -> None:
    """Send the signal, and wait until the broker has written its dump.  Raises Missing."""
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
    """Return what changes whenever the file is replaced."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _folder_of(pid: int) -> Path:
    """Return the data folder of a process: the folder of the lock file that it has open.  Raises UsageError."""
    try:
        opened = list_open_files(pid)
    except OSError as error:
        raise UsageError(f"--pid {pid}: its open files cannot be listed: {error.strerror}; use --data-dir") from None
    for path in map(Path, opened):
        if path.name == "broker.lock":
            return path.parent
    raise UsageError(f"--pid {pid}: the process is not a kctl broker")
