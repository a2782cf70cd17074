"""`kctl users alter`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.commands.command import ChangingCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.topics.options import DRY_RUN
from kctl.commands.users.options import (
    ITERATIONS,
    MECHANISMS_OF_USER,
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
    "alter",
    cls=ChangingCommand,
    epilog=examples(
        "kctl users alter alice",
        "kctl users alter alice --mechanism SCRAM-SHA-512 --iterations 8192 --password-file alice.password",
    ),
)
def alter(
    ctx: typer.Context,
    name: Annotated[str, NAME],
    *,
    mechanism: Annotated[list[str] | None, MECHANISMS_OF_USER] = None,
    iterations: Annotated[int, ITERATIONS] = ITERATIONS_MIN,
    password_file: Annotated[str | None, PASSWORD_FILE] = None,
    zookeeper: Annotated[str | None, ZOOKEEPER] = None,
    zk_tls_config_file: Annotated[str | None, ZK_TLS_CONFIG_FILE] = None,
    dry_run: Annotated[bool, DRY_RUN] = False,
) -> ExitStatus:
    """Change the password of a user.

    Authenticated connections stay open; with connections.max.reauth.ms, the broker requires the new password when that
    time has passed.
    """
    return set_user_password(
        ctx.obj,
        name,
        mechanism_names=mechanism,
        iterations=iterations,
        password_file=password_file,
        ensemble=ensemble_of(zookeeper, zk_tls_config_file),
        is_new=False,
        dry_run=dry_run,
    )
