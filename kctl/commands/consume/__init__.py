"""`kctl consume`: read records of a topic."""

from __future__ import annotations

from kctl.commands.declaration import Group

app = Group("consume", "Read records of a topic.")

VERBS = ("command",)
"""Modules of this package, one for each verb."""
