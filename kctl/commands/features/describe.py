"""`kctl features describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import typer

from kctl.admin.features import describe_features
from kctl.admin.metadata_versions import METADATA_VERSION, metadata_version_name
from kctl.commands.command import ClusterCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.rows import known
from kctl.console import Column

if TYPE_CHECKING:
    from kctl.admin.features import Feature, Features

app = typer.Typer(add_completion=False)

COLUMNS = (
    Column("feature"),
    Column("supported_min", numeric=True),
    Column("supported_max", numeric=True),
    Column("finalized", numeric=True),
    Column("version", is_rare=True),
    Column("epoch", numeric=True),
    Column("differs"),
)


class FeatureRow(NamedTuple):
    """A feature; `version` is the name of the finalized metadata.version."""

    feature: str
    supported_min: int | None
    supported_max: int | None
    finalized: int
    version: str | None
    epoch: int | None
    differs: bool


@app.command(
    "describe", cls=ClusterCommand, epilog=examples("kctl features describe", "kctl features describe --format json")
)
def describe(ctx: typer.Context) -> ExitStatus:
    """Describe the features of the cluster: the levels that all brokers support and the finalized one.

    One row per feature.  A finalized level of 0 means that the feature is disabled.  EPOCH increases with each change
    of a finalized level.  DIFFERS: not all brokers support the same levels.  A cluster whose metadata is in ZooKeeper
    has no features.
    """
    run: Invocation = ctx.obj
    found = run.on_brokers(describe_features)
    run.console.show(COLUMNS, [_row(found, one) for one in found.features])
    if not found.features:
        run.console.note("the cluster has no features")
    return ExitStatus.DONE


def _row(found: Features, one: Feature) -> FeatureRow:
    return FeatureRow(
        feature=one.name,
        supported_min=one.supported_min,
        supported_max=one.supported_max,
        finalized=one.finalized,
        version=metadata_version_name(one.finalized) if one.name == METADATA_VERSION else None,
        epoch=known(found.epoch),
        differs=one.differs,
    )
