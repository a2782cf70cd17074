"""`kctl completion`: print a completion script for a shell."""

from __future__ import annotations

from kctl.commands.declaration import Group

app = Group("completion", "Print a completion script for bash, zsh or fish.")

VERBS = ("command",)
"""Modules of this package, one for each verb."""
