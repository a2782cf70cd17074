"""`kctl broker check`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.commands.broker.data_dir import DataDir, data_dir_of
from kctl.commands.broker.given_properties import overrides_of
from kctl.commands.command import LocalCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.secret_files import exposed_files, read_properties
from kctl.console import Column
from kctl.integers import PORT_MAX
from kctl.server.data_folder import DataFolder
from kctl.server.preflight import findings
from kctl.server.process import StartOptions

if TYPE_CHECKING:
    from kctl.server.preflight import Finding

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
        "kctl broker check --config server.properties --format json",
    ),
)
def check(
    ctx: typer.Context,
    *,
    config: Annotated[str | None, typer.Option("--config", metavar="FILE", help="Kafka's server.properties.")] = None,
    override: Annotated[
        list[str] | None,
        typer.Option("-o", "--override", metavar="NAME=VALUE", help="Set a property; overrides the file."),
    ] = None,
    data_dir: DataDir = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", metavar="N", help="Port on 127.0.0.1, 0 for a free one.  Default: 9092.", max=PORT_MAX, min=0
        ),
    ] = None,
    connect: Annotated[
        bool, typer.Option("--connect", help="Also connect to ZooKeeper and compare the ids of cluster and broker.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with status 3 for warnings too.")] = False,
) -> ExitStatus:
    """Check whether a broker could start with these properties, and list every problem, without starting it.

    Reads the properties, the key stores and the log directories, and takes the ports for an instant.  An error is a
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
    found = asyncio.run(_findings(options, connects=connect))
    rows += [FindingRow(each.severity.value, each.subject, each.message) for each in found]
    # The errors first, each kind in the order of the checks.
    rows.sort(key=lambda row: row.severity != _ERROR)
    if rows or run.console.is_machine_readable:
        run.console.show(COLUMNS, rows)
    errors = sum(row.severity == _ERROR for row in rows)
    run.console.note(f"{errors} errors, {len(rows) - errors} warnings")
    return ExitStatus.UNMET if errors or (strict and rows) else ExitStatus.DONE


async def _findings(options: StartOptions, *, connects: bool) -> list[Finding]:
    return [finding async for finding in findings(options, connects=connects)]
