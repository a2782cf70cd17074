"""`kctl topics`: list, describe, create, alter and delete topics."""

from __future__ import annotations

from kctl.commands.declaration import Group

app = Group("topics", "List, describe, create, alter and delete topics.")

VERBS = ("list", "describe", "create", "alter", "delete")
"""Modules of this package, one for each verb."""
