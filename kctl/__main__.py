"""Entry point of `python -m kctl` and of the console script `kctl`."""

from __future__ import annotations

import sys

from kctl.cli import main as run


def main() -> None:
    """Run the command line of this process and exit with its status."""
    sys.exit(run())


if __name__ == "__main__":
    main()
