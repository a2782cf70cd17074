"""`kctl users create`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.commands.command import ChangingCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.topics.options import DRY_RUN
from kctl.commands.users.options import (
    ITERATIONS,
    MECHANISMS,
    NAME,
    PASSWORD_FILE,
    ZK_TLS_CONFIG_FILE,
    ZOOKEEPER,
    ensemble_of,
)
from kctl.commands.users.setting import set_user_password
from kctl.security.scram_messages import ITERATIONS_MIN

app = typer.Typer(add_completion=False)


@app.command(
    "create",
    cls=ChangingCommand,
    epilog=examples(
        "kctl users create alice",
        "kctl users create alice --mechanism SCRAM-SHA-256 --mechanism SCRAM-SHA-512 --password-file alice.password",
        "kctl users create admin --zookeeper zk1:2181 --password-file admin.password",
    ),
)
def create(
    ctx: typer.Context,
    name: Annotated[str, NAME],
    *,
    mechanism: Annotated[list[str] | None, MECHANISMS] = None,
    iterations: Annotated[int, ITERATIONS] = ITERATIONS_MIN,
    password_file: Annotated[str | None, PASSWORD_FILE] = None,
    zookeeper: Annotated[str | None, ZOOKEEPER] = None,
    zk_tls_config_file: Annotated[str | None, ZK_TLS_CONFIG_FILE] = None,
    dry_run: Annotated[bool, DRY_RUN] = False,
) -> ExitStatus:
    """Create a user with a password.

    Fails if the user already has SCRAM credentials.  The password cannot be given as an argument, because all users of
    the machine can read the arguments of a process.
    """
    return set_user_password(
        ctx.obj,
        name,
        mechanism_names=mechanism,
        iterations=iterations,
        password_file=password_file,
        ensemble=ensemble_of(zookeeper, zk_tls_config_file),
        is_new=True,
        dry_run=dry_run,
    )
