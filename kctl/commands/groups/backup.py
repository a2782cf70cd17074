"""Saves the committed offsets of groups before a command changes them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kctl.admin.backup_files import save_backup
from kctl.admin.group_description import OTHER_TYPES
from kctl.admin.offset_document import OffsetDocument, committed_of
from kctl.admin.throttle_records import folder_of
from kctl.commands.exit_status import Refused
from kctl.commands.values import format_time
from kctl.errors import ErrorCode
from kctl.model import ZERO_UUID, uuid_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kctl.admin.group_description import GroupDescription
    from kctl.admin.offset_document import GroupOffsets
    from kctl.admin.outcome import Outcome
    from kctl.client.cluster import ClusterClient
    from kctl.commands.invocation import Invocation

HINT = "; give another --backup-dir, or --no-backup"


def backup_folder(backup_dir: str | None, cluster_id: str | None) -> Path:
    """The folder with the backups of one cluster."""
    if backup_dir:
        folder = Path(backup_dir).expanduser().absolute()
    else:
        home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
        folder = Path(home).expanduser() / "kctl" / "offsets"
    return folder_of(folder, cluster_id)


def unreadable(groups: Iterable[GroupDescription]) -> dict[str, Outcome]:
    """The errors of the groups that exist and whose offsets cannot be read, such as for lack of a permission."""
    return {
        group.outcome.name: group.outcome
        for group in groups
        if not (group.outcome.is_done or group.outcome.error is ErrorCode.GROUP_ID_NOT_FOUND)
        and group.type not in OTHER_TYPES
    }


def back_up(run: Invocation, groups: Sequence[GroupDescription], reason: str, *, backup_dir: str | None) -> None:
    """Saves the offsets of the groups, if they have any.  Raises Refused if that fails.

    None of them is `unreadable`.  Groups of type share and streams have no offsets that could be read; they are left
    out with a warning.
    """
    for group in groups:
        if group.type in OTHER_TYPES:
            run.console.warn(f"group '{group.outcome.name}' is a {group.type} group: its offsets are not backed up")
    offsets = committed_of(group for group in groups if group.type not in OTHER_TYPES)
    if not offsets:
        return
    cluster_id, topic_ids = run.on_brokers(lambda client: identities(client, offsets))
    document = OffsetDocument(cluster_id, now_text(), reason, offsets, topic_ids)
    try:
        path = save_backup(backup_folder(backup_dir, cluster_id), document)
    except OSError as error:
        raise Refused(f"the committed offsets cannot be backed up: {error.filename}: {error.strerror}{HINT}") from None
    run.console.note(f"backup of the committed offsets: {path}")


async def identities(client: ClusterClient, offsets: GroupOffsets) -> tuple[str | None, dict[str, str]]:
    """The id of the cluster, and those of the topics of the offsets where brokers have them."""
    metadata = await client.metadata({tp.topic for of_group in offsets.values() for tp in of_group})
    return metadata.cluster_id, {
        topic.name: uuid_text(topic.topic_id) for topic in metadata.topics.values() if topic.topic_id != ZERO_UUID
    }


def now_text() -> str:
    """The time of a new document."""
    return format_time(round(time.time() * 1000)) or ""
