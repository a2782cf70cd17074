"""`kctl acls apply`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.admin.acl_document import difference
from kctl.admin.acls import create_acls, delete_acls, list_acls
from kctl.commands.acls.documents import read_acls
from kctl.commands.acls.options import DryRun, hosts_without_effect
from kctl.commands.acls.rows import CHANGE_COLUMNS, AclChangeRow, change_row
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.shown import shows
from kctl.errors import UsageError
from kctl.quantities import counted

app = typer.Typer(add_completion=False)


@app.command(
    "apply",
    cls=ChangingCommand,
    epilog=examples(
        "kctl acls apply acls.json --dry-run",
        "kctl acls apply acls.json --yes",
        "kctl acls apply acls.json --delete --yes",
        "kctl acls apply acls.json --check",
    ),
)
@shows(AclChangeRow)
def apply(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(help="Document that 'kctl acls export' wrote.", metavar="FILE")],
    *,
    delete: Annotated[
        bool, typer.Option("--delete", help="Also remove the ACLs that are not in the document.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit status 3 if the cluster has other ACLs.")
    ] = False,
    dry_run: DryRun = False,
) -> ExitStatus:
    """Add the ACLs of a document that a cluster does not have, and show the ACLs that only the cluster has.

    ACLs are removed only with --delete, after all others have been added.  Asks for confirmation on a terminal;
    elsewhere --yes is required (exit status 5).
    """
    run: Invocation = ctx.obj
    if check and (run.has_consent or dry_run):
        raise UsageError("--check changes nothing: leave out --yes and --dry-run")
    requested = read_acls(file)
    for sentence in hosts_without_effect(requested):
        run.console.warn(sentence)
    missing, extra = difference(requested, run.on_cluster(list_acls))
    if check or dry_run:
        kept = "would be removed" if delete else "only in the cluster"
        rows = [change_row(binding, "only in the document" if check else "would be added") for binding in missing]
        rows += [change_row(binding, "only in the cluster" if check else kept) for binding in extra]
        run.console.show(CHANGE_COLUMNS, rows)
        return ExitStatus.UNMET if check and rows else ExitStatus.DONE
    removed = extra if delete else []
    if not missing and not removed:
        run.console.note("the cluster has all ACLs of the document" + (f" and {len(extra)} more" if extra else ""))
        run.console.show(CHANGE_COLUMNS, [])
        return ExitStatus.DONE
    run.consent(f"Add {counted(len(missing), 'ACL')} and remove {len(removed)}?")
    rows = []
    if missing:
        outcomes = run.on_cluster(lambda client: create_acls(client, missing))
        rows += [change_row(binding, "added", outcome) for binding, outcome in zip(missing, outcomes, strict=True)]
    if removed and not any(row.error for row in rows):
        outcomes = run.on_cluster(lambda client: delete_acls(client, removed))
        rows += [change_row(binding, "removed", outcome) for binding, outcome in zip(removed, outcomes, strict=True)]
    run.console.show(CHANGE_COLUMNS, rows)
    return run.status_of(rows)
