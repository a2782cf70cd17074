"""Arguments and options that several verbs of `kctl groups` take."""

from __future__ import annotations

from typing import Annotated

import typer

Names = Annotated[list[str] | None, typer.Argument(help="Groups.  Default: all.", metavar="GROUP")]
EmptyName = Annotated[
    bool,
    typer.Option(
        "--empty-name",
        help="The group whose name is empty: Kafka accepts offsets for it from consumers without a group.",
    ),
]
All = Annotated[bool, typer.Option("--all", help="All groups except those of type share and streams.")]
GroupRegex = Annotated[
    str | None,
    typer.Option("--group-regex", metavar="RE", help="Groups whose name matches this regular expression as a whole."),
]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC[:N,N-N]", help="This topic, or some of its partitions."),
]
TopicRegex = Annotated[
    str | None,
    typer.Option(
        "--topic-regex",
        metavar="RE",
        help="Topics with offsets of the groups whose name matches this regular expression as a whole.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done without doing it.")]
BackupDir = Annotated[
    str | None,
    typer.Option(
        "--backup-dir",
        metavar="DIR",
        help="Folder of the backups of committed offsets.  Default: kctl/offsets under XDG_STATE_HOME, which is"
        " ~/.local/state.",
    ),
]
NoBackup = Annotated[
    bool, typer.Option("--no-backup", help="Do not save the committed offsets of the groups to a file first.")
]

AcceptLost = Annotated[
    bool,
    typer.Option(
        "--accept-lost", help="Also restore offsets whose records are not in the log any more, or of another topic."
    ),
]
