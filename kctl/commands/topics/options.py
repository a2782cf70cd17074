"""Options that several verbs of `kctl topics` take."""

from __future__ import annotations

import typer

YES = typer.Option("--yes", "-y", help="Do it without asking.")
DRY_RUN = typer.Option("--dry-run", help="Show what would be done and do nothing.")
