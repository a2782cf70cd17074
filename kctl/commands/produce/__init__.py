"""`kctl produce`: write lines to a topic."""

from __future__ import annotations

from kctl.commands.declaration import Group

app = Group("produce", "Write lines from standard input to a topic.")

VERBS = ("command",)
"""Modules of this package, one for each verb."""
