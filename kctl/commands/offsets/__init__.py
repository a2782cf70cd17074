"""`kctl offsets`: look up offsets of partitions."""

from __future__ import annotations

from kctl.commands.declaration import Group

app = Group("offsets", "Look up offsets of partitions.")

VERBS = ("get",)
"""Modules of this package, one for each verb."""
