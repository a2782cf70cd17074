"""`kctl features downgrade`."""

from __future__ import annotations

from typing import Annotated

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
) -> ExitStatus:
    """Finalize lower levels of features; level 0 disables a feature.

    Asks for confirmation on a terminal; elsewhere --yes is required (exit status 5).
    """
    run: Invocation = ctx.obj
    levels = levels_of(feature, metadata_version, low=0)
    kind = UpdateType.UNSAFE_DOWNGRADE if unsafe else UpdateType.SAFE_DOWNGRADE
    return update(run, levels, kind, dry_run=dry_run)
