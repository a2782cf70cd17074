"""`kctl features upgrade`."""

from __future__ import annotations

import typer

from kctl.admin.features import UpdateType
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.features.updating import (
    DryRunOption,
    FeatureOption,
    MetadataVersionOption,
    UpdateRow,
    levels_of,
    update,
)
from kctl.commands.invocation import Invocation
from kctl.commands.shown import shows

app = typer.Typer(add_completion=False)


@app.command(
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
) -> ExitStatus:
    """Finalize higher levels of features.

    Brokers that do not support a finalized level cannot join the cluster any more, and most levels cannot be lowered
    without loss of metadata.  Asks for confirmation on a terminal; elsewhere --yes is required (exit status 5).
    """
    run: Invocation = ctx.obj
    levels = levels_of(feature, metadata_version, low=1)
    return update(run, levels, UpdateType.UPGRADE, dry_run=dry_run)
