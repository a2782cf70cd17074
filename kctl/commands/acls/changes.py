"""Shows the outcome of `kctl acls add` and `kctl acls remove`."""

from __future__ import annotations

from collections.abc import Sequence

from kctl.admin.acl_rules import Resources, Rules, filters
from kctl.admin.acls import list_acls
from kctl.admin.outcome import Outcome
from kctl.commands.acls.rows import CHANGE_COLUMNS, change_row
from kctl.commands.compat.acls import listed
from kctl.commands.compat.versions import KAFKA_28
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.errors import ApiError
from kctl.security.acls import AclBinding


def show_planned(run: Invocation, acls: Sequence[AclBinding], status: str) -> ExitStatus:
    """Shows the ACLs that a dry run would change."""
    run.console.show(CHANGE_COLUMNS, [change_row(binding, status) for binding in acls])
    return ExitStatus.DONE


def show_changed(run: Invocation, acls: Sequence[AclBinding], outcomes: Sequence[Outcome], status: str) -> ExitStatus:
    """Shows the changed ACLs with their outcomes."""
    rows = [change_row(binding, status, outcome) for binding, outcome in zip(acls, outcomes, strict=True)]
    run.console.show(CHANGE_COLUMNS, rows)
    return run.status_of(rows)


def show_as_kafka(run: Invocation, compat: str, resources: Resources, outcomes: Sequence[Outcome]) -> ExitStatus:
    """Prints the ACLs of the resources after a change, as kafka-acls of 2.8 does; later ones print nothing.

    Raises ApiError if a change failed.
    """
    failed = next((outcome for outcome in outcomes if not outcome.is_done), None)
    if failed is not None:
        raise ApiError(failed.error, failed.message)
    if compat == KAFKA_28:
        selected = filters(resources, Rules())
        run.console.verbatim(listed(compat, run.on_cluster(lambda client: list_acls(client, selected))))
    return ExitStatus.DONE
