"""`kctl quotas check`."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer

from kctl.admin.quotas import DecidingQuota, deciding_ip_quota, deciding_quota, describe_quotas
from kctl.commands.command import examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.query import QueryCommand
from kctl.commands.quotas.rows import number_text, warn_if_throttled
from kctl.commands.shown import shows
from kctl.commands.values import parse_ip_address
from kctl.console import Column
from kctl.errors import UsageError
from kctl.security.quotas import CLIENT_KEYS

app = typer.Typer(add_completion=False)

CHECK_COLUMNS = (
    Column("quota"),
    Column("value", numeric=True),
    Column("entity"),
    Column("shared_by"),
    Column("overridden", wraps=True),
)


class CheckRow(NamedTuple):
    """Which quota of one kind applies; null where there is none."""

    quota: str
    value: float | int | None
    entity: str | None
    shared_by: str | None
    overridden: list[str]


@app.command(
    "check",
    cls=QueryCommand,
    epilog=examples(
        "kctl quotas check --user alice --client-id app",
        "kctl quotas check --user alice --client-id app --ip 192.0.2.4 --format json",
    ),
)
@shows(CheckRow)
def check(
    ctx: typer.Context,
    *,
    user: Annotated[
        str, typer.Option("--user", metavar="NAME", help="The user; ANONYMOUS for clients without authentication.")
    ] = "ANONYMOUS",
    client_id: Annotated[str, typer.Option("--client-id", metavar="ID", help="The client id; empty for none.")] = "",
    ip: Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="The IP address.")] = None,
) -> ExitStatus:
    """Show which quotas apply to a client, and which ones they override.

    Of the quotas with one key the most specific applies: user and client id, user and default client id, user, default
    user and client id, default user and default client id, default user, client id, default client id.  ENTITY
    is the entity of the quota, SHARED_BY the clients that share it.  Quotas in a broker's properties file
    (quota.producer.default) are not shown.
    The throttle times of other clients cannot be queried; kctl warns if its own request was throttled.
    """
    run: Invocation = ctx.obj
    if not user:
        raise UsageError("--user must not be empty; clients without a login are ANONYMOUS")
    address = None if ip is None else parse_ip_address(ip, "--ip")
    found, throttle_ms = run.on_cluster(describe_quotas)
    decided = [deciding_quota(found, key, user, client_id) for key in CLIENT_KEYS]
    if address is not None:
        decided.append(deciding_ip_quota(found, address))
    run.console.show(CHECK_COLUMNS, [_row(one) for one in decided])
    warn_if_throttled(run, throttle_ms)
    return ExitStatus.DONE


def _row(one: DecidingQuota) -> CheckRow:
    return CheckRow(
        one.key,
        None if one.value is None else number_text(one.value),
        one.entity,
        one.shared_by,
        [f"{entity}: {number_text(value)}" for entity, value in one.overridden],
    )
