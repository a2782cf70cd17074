"""`kctl broker`: start, stop and check the broker of a data folder."""

from __future__ import annotations

from kctl.commands.declaration import Group

app = Group("broker", "Start, stop and check a broker.")

VERBS = ("start", "stop", "status")
"""Modules of this package, one for each verb."""
