"""Options, plan and rows of `kctl features upgrade` and `downgrade`."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer

from kctl.admin.features import Features, UpdateType, describe_features, update_features
from kctl.admin.metadata_versions import METADATA_VERSION, metadata_version_level
from kctl.admin.outcome import Outcome
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.rows import outcome_error
from kctl.commands.values import parse_pairs
from kctl.console import ERROR_COLUMNS, Column
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.integers import parse_integer

LEVEL_MAX = 32_767

COLUMNS = (
    Column("feature"),
    Column("level_before", numeric=True),
    Column("level", numeric=True),
    Column("status"),
    *ERROR_COLUMNS,
)

FeatureOption = Annotated[
    list[str] | None,
    typer.Option("--feature", metavar="NAME=LEVEL", help="A feature and its new level."),
]
MetadataVersionOption = Annotated[
    str | None,
    typer.Option(
        "--metadata-version",
        metavar="VERSION",
        help="The new metadata.version: a name such as 4.0-IV3, a release such as 4.0 (its last), or a level.",
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Only let the controller validate the change (Kafka 3.3 or newer).")
]


class UpdateRow(NamedTuple):
    """The change of one feature."""

    feature: str
    level_before: int | None
    level: int
    status: str | None
    error: str | None = None
    message: str | None = None


def levels_of(feature: list[str] | None, metadata_version: str | None, *, low: int) -> dict[str, int]:
    """The new levels by feature.  Raises UsageError if there are none."""
    levels = {
        name: parse_integer(value, f"the level of {name}", low=low, high=LEVEL_MAX)
        for name, value in parse_pairs(feature, "--feature").items()
    }
    if metadata_version is not None:
        if METADATA_VERSION in levels:
            raise UsageError(f"give --metadata-version or --feature {METADATA_VERSION}=LEVEL, not both")
        levels[METADATA_VERSION] = metadata_version_level(metadata_version)
    if not levels:
        raise UsageError("name at least one feature with --feature NAME=LEVEL or --metadata-version")
    return levels


def update(run: Invocation, levels: dict[str, int], kind: UpdateType, *, dry_run: bool) -> ExitStatus:
    """Shows the change, asks for consent, and performs it."""
    before = run.on_brokers(describe_features)
    if not dry_run:
        verb = "Upgrade" if kind is UpdateType.UPGRADE else "Downgrade"
        changes = ", ".join(f"{name} from {_level(before, name)} to {level}" for name, level in sorted(levels.items()))
        run.consent(f"{verb} {changes}?")
    try:
        outcomes = run.on_cluster(lambda client: update_features(client, levels, kind, validate_only=dry_run))
    except ApiError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            raise
        outcomes = [Outcome(name, error.code, str(error)) for name in sorted(levels)]
    status = ("would be " if dry_run else "") + ("upgraded" if kind is UpdateType.UPGRADE else "downgraded")
    rows = [
        UpdateRow(
            feature=one.name,
            level_before=_level(before, one.name),
            level=levels[one.name],
            status=status if one.is_done else None,
            **outcome_error(one),
        )
        for one in outcomes
    ]
    run.console.show(COLUMNS, rows)
    return run.status_of(rows)


def _level(found: Features, name: str) -> int | None:
    return next((one.finalized for one in found.features if one.name == name), None)
