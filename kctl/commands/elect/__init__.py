"""`kctl elect`: elect leaders of partitions now."""

from __future__ import annotations

from kctl.commands.declaration import Group

app = Group("elect", "Elect leaders of partitions.")

VERBS = ("command",)
"""Modules of this package, one for each verb."""
