"""Options that several verbs of `kctl topics` take."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer

DRY_RUN = typer.Option("--dry-run", help="Show what would be done without doing it.")
FILTER_PANEL = "Filters"

UnderReplicated = Annotated[
    bool,
    typer.Option(
        "--under-replicated", help="Only partitions with replicas that are not in sync.", rich_help_panel=FILTER_PANEL
    ),
]
Unavailable = Annotated[
    bool, typer.Option("--unavailable", help="Only partitions without a live leader.", rich_help_panel=FILTER_PANEL)
]
UnderMinIsr = Annotated[
    bool,
    typer.Option(
        "--under-min-isr",
        help="Only partitions with fewer in-sync replicas than min.insync.replicas.",
        rich_help_panel=FILTER_PANEL,
    ),
]
AtMinIsr = Annotated[
    bool,
    typer.Option(
        "--at-min-isr",
        help="Only partitions with exactly min.insync.replicas in-sync replicas.",
        rich_help_panel=FILTER_PANEL,
    ),
]
Overrides = Annotated[
    bool,
    typer.Option("--overrides", help="Only topics that have properties of their own.", rich_help_panel=FILTER_PANEL),
]
Id = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="RE",
        help="Only topics whose id matches this regular expression as a whole; an id matches itself.",
        rich_help_panel=FILTER_PANEL,
    ),
]


class FilterOptions(NamedTuple):
    """The filters on a command line of `list` and `describe`."""

    under_replicated: bool
    unavailable: bool
    under_min_isr: bool
    at_min_isr: bool
    overrides: bool
    topic_regex: str | None
    id: str | None


NO_FILTERS = FilterOptions(False, False, False, False, False, None, None)

TopicRegex = Annotated[
    str | None,
    typer.Option(
        "--topic-regex",
        metavar="RE",
        help="Topics whose name matches this regular expression as a whole, except internal topics.",
        rich_help_panel=FILTER_PANEL,
    ),
]
Expect = Annotated[
    str | None,
    typer.Option(
        "--expect",
        metavar="N",
        help="Change nothing, and exit with status 3, unless N topics are selected; also '>=N', '<=N' and others.",
    ),
]
