"""`kctl broker check`."""

from __future__ import annotations

import asyncio
from typing import Annotated, NamedTuple

import typer

from kctl.commands.broker.data_dir import DataDir, data_dir_of
from kctl.commands.broker.given_properties import ConfigFile, Overrides, Port, overrides_of
from kctl.commands.broker.processes import PortStep, Processes, machine_of
from kctl.commands.command import LocalCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.secret_files import exposed_files, read_properties
from kctl.commands.shown import shows
from kctl.console import Column, Format
from kctl.quantities import counted
from kctl.server.data_folder import DataFolder
from kctl.server.machine.layout import unexpected_data
from kctl.server.preflight import Finding, Severity, findings
from kctl.server.process import StartOptions

app = typer.Typer(add_completion=False)

COLUMNS = (Column("severity"), Column("subject"), Column("message", wraps=True))
_WARNING, _ERROR = "warning", "error"


class FindingRow(NamedTuple):
    """A problem of the configuration or of the machine."""

    severity: str
    subject: str
    message: str


@app.command(
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
    rows += [FindingRow(each.severity.value, each.subject, each.message) for each in found]
    # The errors first, each kind in the order of the checks.
    rows.sort(key=lambda row: row.severity != _ERROR)
    if rows or run.console.format not in {Format.TABLE, Format.PLAIN}:
        run.console.show(COLUMNS, rows)
    errors = sum(row.severity == _ERROR for row in rows)
    run.console.note(f"{counted(errors, 'error')}, {counted(len(rows) - errors, 'warning')}")
    return ExitStatus.UNMET if errors or (strict and rows) else ExitStatus.DONE


async def _findings(
    service: StartOptions, checked: list[StartOptions], processes: int | None, *, connects: bool
) -> list[Finding]:
    problem = unexpected_data(service.folder, processes, service.given)
    of_folder = [] if problem is None else [Finding(Severity.ERROR, str(service.folder.path), problem)]
    return [*of_folder, *[finding for options in checked async for finding in findings(options, connects=connects)]]
