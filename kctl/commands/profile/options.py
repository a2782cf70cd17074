"""Arguments of several verbs of `kctl profile`, and the file that they change."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from kctl.commands.exit_status import ExitStatus
from kctl.commands.profile.rows import COLUMNS, profile_row
from kctl.commands.profile_document import Profiles
from kctl.commands.profile_file import change_profiles
from kctl.commands.profile_store import load_profiles, profiles_path

if TYPE_CHECKING:
    from kctl.commands.invocation import Invocation

NAME = typer.Argument(help="Name of the profile.", metavar="PROFILE")


def stored() -> Profiles:
    """All profiles of the user.  Raises UsageError."""
    return load_profiles(profiles_path(os.environ)) or Profiles()


def change(run: Invocation, edit: Callable[[Profiles], Profiles], name: str | None) -> ExitStatus:
    """Changes the stored profiles, and shows the one called `name` afterwards.  Raises UsageError."""
    profiles = change_profiles(profiles_path(os.environ), edit)
    rows = [] if name is None else [profile_row(profiles.named(name), profiles)]
    run.console.show(COLUMNS, rows)
    return ExitStatus.DONE
