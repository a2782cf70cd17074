"""`kctl dump-log`: show what log and index files hold, and repair indexes."""

from __future__ import annotations

from kctl.commands.declaration import Group

app = Group("dump-log", "Show what log and index files hold.")

VERBS = ("command",)
"""Modules of this package, one for each verb."""
