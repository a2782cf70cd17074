"""Options that several verbs of `kctl topics` take."""

from __future__ import annotations

import typer

YES = typer.Option("--yes", "-y", help="Do not ask for confirmation.")
DRY_RUN = typer.Option("--dry-run", help="Show what would be done without doing it.")
