"""Entry point of `python -m kctl` and of the console script `kctl`."""

from __future__ import annotations

import signal
import sys

from kctl.system.hidden_packages import hide_pandas


def main() -> None:
    """Run the command line of this process and exit with its status."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        # Ctrl-C while modules are imported ends the process without a traceback; later, `kctl.cli` handles it.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    hide_pandas()
    from kctl.cli import main as run  # noqa: PLC0415 - after the signal is set

    signal.signal(signal.SIGINT, handler)
    sys.exit(run())


if __name__ == "__main__":
    main()
