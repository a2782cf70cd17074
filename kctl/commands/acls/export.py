"""`kctl acls export`."""

from __future__ import annotations

import typer

from kctl.admin.acl_document import write_document
from kctl.admin.acls import list_acls
from kctl.commands.command import ClusterCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation

app = typer.Typer(add_completion=False)


@app.command("export", cls=ClusterCommand, epilog=examples("kctl acls export > acls.json"))
def export(ctx: typer.Context) -> ExitStatus:
    """Print all ACLs as a JSON document for 'kctl acls apply' and 'kctl acls check --from', whatever --format is.

    The document has one ACL per line in a stable order, so that two exports can be compared as text.
    """
    run: Invocation = ctx.obj
    run.console.verbatim(write_document(run.on_cluster(list_acls)))
    return ExitStatus.DONE
