"""`kctl groups export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kctl.admin.offset_document import OffsetDocument, committed_of, format_document
from kctl.admin.reset_file import format_offsets
from kctl.admin.rollback_files import write_new
from kctl.commands.command import ClusterCommand, examples
from kctl.commands.exit_status import ExitStatus, Refused
from kctl.commands.groups.backup import identities, now_text
from kctl.commands.groups.options import All, GroupRegex, TopicRegex, Topics
from kctl.commands.groups.reset import look_up
from kctl.commands.groups.restoring import in_scope
from kctl.commands.groups.selection import all_selected_groups, group_pattern
from kctl.commands.invocation import Invocation
from kctl.errors import KctlError, UsageError
from kctl.quantities import counted

if TYPE_CHECKING:
    from kctl.admin.group_description import GroupDescription
    from kctl.client.cluster import ClusterClient

app = typer.Typer(add_completion=False)


@app.command(
    "export",
    cls=ClusterCommand,
    epilog=examples(
        "kctl groups export billing --file billing.json",
        "kctl groups export --all > offsets.json",
        "kctl groups export billing --topic orders --as csv > orders.csv    (for Kafka's --from-file)",
    ),
)
def export(
    ctx: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(help="Groups to export.", metavar="GROUP")] = None,
    *,
    all_: All = False,
    group_regex: GroupRegex = None,
    topic: Topics = None,
    topic_regex: TopicRegex = None,
    as_: Annotated[
        Literal["json", "csv"],
        typer.Option(
            "--as",
            help="json, with metadata; or the CSV of kafka-consumer-groups: topic,partition,offset, and the group in"
            " front if several groups are exported.",
        ),
    ] = "json",
    file: Annotated[
        str | None,
        typer.Option("--file", metavar="FILE", help="Write this new file, which must not exist.  Default: stdout."),
    ] = None,
) -> ExitStatus:
    """Print the committed offsets of groups for 'kctl groups import' and 'restore --backup', whatever --format is."""
    run: Invocation = ctx.obj
    pattern = group_pattern(names, group_regex, all_=all_)
    if not (names or all_ or pattern):
        raise UsageError("name the groups to export, or use --all or --group-regex")

    async def read(client: ClusterClient) -> list[GroupDescription]:
        requested = await all_selected_groups(run, client, names, pattern)
        return await look_up(client, requested)

    groups = run.on_brokers(read)
    committed = committed_of(groups)
    missing = [one.outcome.name for one in groups if one.outcome.name not in committed] if names else []
    if missing:
        raise KctlError(f"no committed offsets: {', '.join(missing)}")
    # With --all, a cluster without groups is an empty document.
    offsets = in_scope(committed, topic, topic_regex) if committed or not all_ else {}
    if as_ == "csv":
        lines = ((group, tp, offsets[group][tp].offset) for group in sorted(offsets) for tp in sorted(offsets[group]))
        text = format_offsets(lines, with_group=len(offsets) > 1)
    else:
        cluster_id, topic_ids = run.on_brokers(lambda client: identities(client, offsets))
        text = format_document(OffsetDocument(cluster_id, now_text(), "export", offsets, topic_ids))
    if file is None:
        run.console.verbatim(text)
        return ExitStatus.DONE
    try:
        write_new(Path(file), text)
    except FileExistsError:
        raise Refused(f"{file} exists and is not overwritten: give another --file") from None
    run.console.note(
        f"{counted(sum(map(len, offsets.values())), 'offset')} of {counted(len(offsets), 'group')} written to {file}"
    )
    return ExitStatus.DONE
