"""Options that several verbs of `kctl topics` take."""

from __future__ import annotations

from kctl.commands.declaration import Option

YES = Option("--yes", "-y", help="Do it without asking.")
DRY_RUN = Option("--dry-run", help="Show what would be done and do nothing.")
