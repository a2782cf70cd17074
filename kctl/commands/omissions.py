"""Says why a list is empty: brokers omit what the user may not describe, without an error."""

from __future__ import annotations

from collections.abc import Sized

from kctl.commands.invocation import Invocation
from kctl.errors import KctlError


def note_omissions(run: Invocation, found: Sized, what: str) -> None:
    """Writes a note if nothing was found and the user may not describe the cluster; `what` is a plural."""
    if found or run.console.quiet:
        return
    from kctl.admin.permissions import may_describe_cluster  # noqa: PLC0415 - only for an empty list

    try:
        is_permitted = run.on_cluster(may_describe_cluster)
    except KctlError:
        return  # The list is complete without the note.
    if is_permitted is False:
        run.console.note(
            f"no {what} are listed: the user may not describe the cluster, and a broker omits {what} that the user "
            "may not describe"
        )
