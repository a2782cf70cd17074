"""The --data-dir option of `kctl broker` and its default."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

DataDir = Annotated[
    str | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Folder of the broker.  Default: kctl/broker under XDG_DATA_HOME, which is ~/.local/share.",
    ),
]


def data_dir_of(given: str | None) -> Path:
    """The absolute path of the data folder: the value of --data-dir, or its default if that is None."""
    if given:
        return Path(given).expanduser().absolute()
    home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(home).expanduser() / "kctl" / "broker"
