"""`kctl groups`: look at consumer groups, delete them, and say where they read on."""

from __future__ import annotations

from kctl.commands.declaration import Group

app = Group("groups", "Look at consumer groups, delete them, reset their offsets.")

VERBS = ("list", "describe", "members", "delete", "delete_offsets", "reset_offsets")
"""Modules of this package, one for each verb."""
