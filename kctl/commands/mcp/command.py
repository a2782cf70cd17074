"""`kctl mcp`."""

from __future__ import annotations

import importlib
import shlex
from typing import Annotated

import typer

from kctl.commands.frame.command import ClusterCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.mcp.roots import Roots
from kctl.errors import UsageError

app = typer.Typer(add_completion=False)


@app.command(
    "mcp",
    cls=ClusterCommand,
    epilog=examples(
        "kctl mcp --bootstrap-server 127.0.0.1:9092",
        "kctl mcp --command-config client.properties --allow-writes",
        "kctl mcp --allow-root /data/exports --allow-root s3://lake/exports",
    ),
)
def mcp(
    ctx: typer.Context,
    *,
    allow_writes: Annotated[
        bool,
        typer.Option("--allow-writes", help="Also offer commands that change things, each after a dry run."),
    ] = False,
    allow_root: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-root",
            metavar="DIR",
            help="Also offer tables_status, for exports in this folder or below this URL (s3://, gs://, az://).",
        ),
    ] = None,
) -> ExitStatus:
    """Serve the commands as tools for agents, by the Model Context Protocol on standard input and output.

    The cluster is that of the options and the environment; a tool call cannot name another one.  Without
    --allow-writes, all tools are read-only.  With it, a call that changes things is a dry run, whose result has a
    confirmation; the same call with this confirmation makes the change.  No tool reads or writes a file that a call
    names, except exports in an --allow-root.  The server ends at the end of its input; see docs/mcp.md.  It requires
    the extra 'mcp' of the package kctl-kafka.
    """
    run: Invocation = ctx.obj
    run.client_settings()  # refuses wrong settings at the start
    roots = Roots(allow_root or ())
    try:
        server = importlib.import_module("kctl.commands.mcp.server")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("kctl"):
            raise
        raise UsageError(f"{error.name} is missing: pip install 'kctl-kafka[mcp]'") from None
    server.serve(shlex.split(run.cluster_options()), roots, allow_writes=allow_writes)
    return ExitStatus.DONE
