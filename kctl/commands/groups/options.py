"""Arguments and options that several verbs of `kctl groups` take."""

from __future__ import annotations

from typing import Annotated

from kctl.commands.declaration import Argument, Option

COMPATS = ("kafka-2.8", "kafka-4")
Names = Annotated[list[str] | None, Argument("Groups; all when none is named.", metavar="GROUP")]
All = Annotated[bool, Option("--all", help="All groups but those of type share and streams.")]
Topics = Annotated[
    list[str] | None,
    Option("--topic", metavar="TOPIC[:N,N-N]", help="This topic, or some of its partitions."),
]
Yes = Annotated[bool, Option("--yes", "-y", help="Do it without asking.")]
DryRun = Annotated[bool, Option("--dry-run", help="Show what would be done and do nothing.")]
Compat = Annotated[
    str | None, Option("--compat", choices=COMPATS, help="Print what Kafka's own tool of that version prints.")
]
