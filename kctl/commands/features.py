"""`kctl features`: describe, upgrade and downgrade the features of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.cluster.features import (
    METADATA_VERSION,
    Features,
    UpdateType,
    describe_features,
    metadata_version_level,
    metadata_version_name,
    update_features,
)
from kctl.client.outcome import Outcome
from kctl.commands.frame.command import ChangingCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.lazy_group import verb_group
from kctl.commands.frame.options.option_types import Pair
from kctl.commands.frame.options.parameters import BootstrapController
from kctl.commands.frame.output.rows import known, outcome_error
from kctl.commands.frame.output.shown import shows
from kctl.commands.frame.query import QueryCommand
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.output.console import Column, ErrorName, ErrorText
from kctl.output.quantities import parse_integer

if TYPE_CHECKING:
    from kctl.admin.cluster.features import Feature


app = typer.Typer(
    cls=verb_group(__name__, ["describe", "upgrade", "downgrade"]),
    help="Describe, upgrade and downgrade the features of a cluster.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)


# `kctl features describe`.


verbs = typer.Typer(add_completion=False)


class FeatureRow(NamedTuple):
    """A feature; `version` is the name of the finalized metadata.version."""

    feature: str
    supported_min: int | None
    supported_max: int | None
    finalized: int
    version: Annotated[str | None, Column(is_rare=True)]
    epoch: int | None
    differs: bool


@verbs.command(
    "describe", cls=QueryCommand, epilog=examples("kctl features describe", "kctl features describe --format json")
)
@shows(FeatureRow)
def describe(ctx: typer.Context, *, bootstrap_controller: BootstrapController = None) -> ExitStatus:
    """Describe the features of the cluster: the levels that all brokers support and the finalized one.

    One row per feature.  A finalized level of 0 means that the feature is disabled.  EPOCH increases with each change
    of a finalized level.  DIFFERS: not all brokers support the same levels.  A cluster of Apache Kafka whose metadata
    is in ZooKeeper has no features.
    """
    run: Invocation = ctx.obj
    run.at_controllers(bootstrap_controller)
    found = run.on_brokers(describe_features)
    run.console.show(FeatureRow, [_row(found, feature) for feature in found.features])
    if not found.features:
        run.console.note("the cluster has no features")
    return ExitStatus.DONE


def _row(found: Features, feature: Feature) -> FeatureRow:
    return FeatureRow(
        feature=feature.name,
        supported_min=feature.supported_min,
        supported_max=feature.supported_max,
        finalized=feature.finalized,
        version=metadata_version_name(feature.finalized) if feature.name == METADATA_VERSION else None,
        epoch=known(found.epoch),
        differs=feature.differs,
    )


# Options, plan and rows of `kctl features upgrade` and `downgrade`.


LEVEL_MAX = 32_767


FeatureOption = Annotated[
    list[Pair] | None,
    typer.Option("--feature", metavar="NAME=LEVEL", parser=Pair, help="A feature and its new level."),
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
    error: ErrorName = None
    message: ErrorText = None


def levels_of(feature: list[Pair] | None, metadata_version: str | None, *, low: int) -> dict[str, int]:
    """Return the new levels by feature.  Raises UsageError if there are none."""
    levels = {
        name: parse_integer(value, f"the level of {name}", low=low, high=LEVEL_MAX)
        for name, value in dict(feature or ()).items()
    }
    if metadata_version is not None:
        if METADATA_VERSION in levels:
            raise UsageError(f"give --metadata-version or --feature {METADATA_VERSION}=LEVEL, not both")
        levels[METADATA_VERSION] = metadata_version_level(metadata_version)
    if not levels:
        raise UsageError("name at least one feature with --feature NAME=LEVEL or --metadata-version")
    return levels


def update(run: Invocation, levels: dict[str, int], kind: UpdateType, *, dry_run: bool) -> ExitStatus:
    """Show the change, ask for consent, and perform it."""
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
            feature=outcome.name,
            level_before=_level(before, outcome.name),
            level=levels[outcome.name],
            status=status if outcome.is_done else None,
            **outcome_error(outcome),
        )
        for outcome in outcomes
    ]
    run.console.show(UpdateRow, rows)
    return run.status_of(rows)


def _level(found: Features, name: str) -> int | None:
    return next((feature.finalized for feature in found.features if feature.name == name), None)


# `kctl features upgrade`.


@verbs.command(
    "upgrade",
    cls=ChangingCommand,
    epilog=examples(
        "kctl features upgrade --metadata-version 4.0 --dry-run",
        "kctl features upgrade --metadata-version 4.0-IV3 --yes",
        "kctl features upgrade --feature transaction.version=2 --feature group.version=1",
    ),
)
@shows(UpdateRow)
def upgrade(
    ctx: typer.Context,
    *,
    feature: FeatureOption = None,
    metadata_version: MetadataVersionOption = None,
    dry_run: DryRunOption = False,
    bootstrap_controller: BootstrapController = None,
) -> ExitStatus:
    """Finalize higher levels of features.

    Brokers that do not support a finalized level cannot join the cluster any more, and most levels cannot be lowered
    without loss of metadata.  Asks for confirmation on a terminal; elsewhere --yes is required (exit status 5).
    """
    run: Invocation = ctx.obj
    run.at_controllers(bootstrap_controller)
    levels = levels_of(feature, metadata_version, low=1)
    return update(run, levels, UpdateType.UPGRADE, dry_run=dry_run)


# `kctl features downgrade`.


@verbs.command(
    "downgrade",
    cls=ChangingCommand,
    epilog=examples(
        "kctl features downgrade --feature transaction.version=1 --dry-run",
        "kctl features downgrade --metadata-version 3.9 --yes",
        "kctl features downgrade --feature group.version=0 --yes",
    ),
)
@shows(UpdateRow)
def downgrade(
    ctx: typer.Context,
    *,
    feature: FeatureOption = None,
    metadata_version: MetadataVersionOption = None,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Allow a downgrade that loses metadata, if the controller supports it.")
    ] = False,
    dry_run: DryRunOption = False,
    bootstrap_controller: BootstrapController = None,
) -> ExitStatus:
    """Finalize lower levels of features; level 0 disables a feature.

    Asks for confirmation on a terminal; elsewhere --yes is required (exit status 5).
    """
    run: Invocation = ctx.obj
    run.at_controllers(bootstrap_controller)
    levels = levels_of(feature, metadata_version, low=0)
    kind = UpdateType.UNSAFE_DOWNGRADE if unsafe else UpdateType.SAFE_DOWNGRADE
    return update(run, levels, kind, dry_run=dry_run)
