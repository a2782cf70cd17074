"""`kctl registry serve`."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.commands.broker.start import StopWith, running_process
from kctl.commands.frame.command import ClusterCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.log_format import LogFormatOption, log_format_of
from kctl.commands.frame.output.shown import shows_one
from kctl.errors import KctlError, UsageError
from kctl.model import topic_name_problem
from kctl.output.log_lines import set_up_logging
from kctl.output.quantities import PORT_MAX
from kctl.server.loop.tasks import stop_at_end_of
from kctl.system.user_files import replace_private

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient
    from kctl.schemas.serving.server import ServerOptions

verbs = typer.Typer(add_completion=False)

DEFAULT_PORT = 8081
"""The port of Confluent's registry."""


class RegistryItem(NamedTuple):
    """A schema registry, from when connections are accepted."""

    url: str
    topic: str
    pid: int


@verbs.command(
    "serve",
    cls=ClusterCommand,
    epilog=examples(
        "kctl registry serve --bootstrap-server 127.0.0.1:9092",
        "kctl registry serve --port 0 --ready-file /tmp/registry.json --stop-with $$",
        "kctl registry serve --listen 0.0.0.0 --user-file users.txt",
    ),
)
@shows_one(RegistryItem)
def serve(
    ctx: typer.Context,
    *,
    port: Annotated[
        int, typer.Option("--port", metavar="N", help="Port of the REST API; 0 for a free one.", min=0, max=PORT_MAX)
    ] = DEFAULT_PORT,
    listen: Annotated[
        str,
        typer.Option("--listen", metavar="HOST", help="Address to listen on; 0.0.0.0 is every IPv4 interface."),
    ] = "127.0.0.1",
    topic: Annotated[
        str, typer.Option("--topic", metavar="TOPIC", help="Topic with the schemas; created if it does not exist.")
    ] = "_schemas",
    user_file: Annotated[
        str | None,
        typer.Option(
            "--user-file",
            metavar="FILE",
            help="Require basic authentication, with the users in this file: a line USER:PASSWORD for each.",
        ),
    ] = None,
    stop_with: StopWith = None,
    ready_file: Annotated[
        str | None,
        typer.Option("--ready-file", metavar="FILE", help="Write the URL to this file when the registry serves."),
    ] = None,
    log_format: LogFormatOption = None,
) -> ExitStatus:
    """Serve a schema registry with Confluent's REST API until it is stopped.

    Schemas are in a compacted topic in Confluent's format, which is read when the registry starts; a change is answered
    when it is in the topic.  One registry at a time may write to a topic: one that notices another ends.

    It listens on the loopback address only, unless --listen is given, and has no TLS.
    """
    run: Invocation = ctx.obj
    problem = topic_name_problem(topic)
    if problem is not None:
        raise UsageError(f"--topic {topic}: {problem}")
    set_up_logging(None if run.console.quiet else sys.stderr, log_format_of(log_format))
    file = _ready_file(ready_file)
    options = _options(listen, port, topic, user_file)
    if not options.users.is_required and not _is_loopback(listen):
        run.console.warn("everybody who can connect may read and change schemas: --user-file requires a user")
    pid = running_process(stop_with)
    return run.on_cluster_concurrently(lambda client: _serve(run, client, options, file, pid))


def _options(host: str, port: int, topic: str, user_file: str | None) -> ServerOptions:
    try:
        from kctl.schemas.serving.server import ServerOptions  # noqa: PLC0415 - an extra
        from kctl.schemas.serving.users import Users, read_users  # noqa: PLC0415 - with it
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is missing: pip install 'kctl-kafka[registry-server]'") from None
    return ServerOptions(host, port, topic, Users([]) if user_file is None else read_users(user_file))


def _ready_file(path: str | None) -> Path | None:
    """Remove a file that an earlier registry has left.  Raises UsageError."""
    if path is None:
        return None
    file = Path(path).absolute()
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"--ready-file {path}: {error.strerror}") from None
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise UsageError(f"--ready-file {path}: files cannot be created in {file.parent}")
    return file


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def _serve(
    run: Invocation, client: ClusterClient, options: ServerOptions, ready_file: Path | None, stop_with: int | None
) -> ExitStatus:
    from kctl.schemas.serving.server import RegistryServer  # noqa: PLC0415 - an extra

    def on_serving(url: str) -> None:
        item = RegistryItem(url, options.topic, os.getpid())
        run.console.note(f"serving {url}, schemas in the topic {options.topic}")
        if ready_file is not None:
            try:
                replace_private(ready_file, (json.dumps(item._asdict()) + "\n").encode(), is_durable=False)
            except OSError as error:
                raise KctlError(f"--ready-file {ready_file} cannot be written: {error.strerror}") from None
        if run.console.is_machine_readable:
            run.console.outlive_reader()
            run.console.show_one(item)
        run.console.flush()

    serving = asyncio.create_task(RegistryServer(client, options.topic).run(options, on_serving))
    watching = None if stop_with is None else asyncio.create_task(stop_at_end_of(stop_with, lambda: _cancel(serving)))
    try:
        await asyncio.wait([serving])
        if not serving.cancelled():
            serving.result()
    finally:
        for task in filter(None, (watching, serving)):
            task.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    return ExitStatus.DONE


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
