"""Signals that end tests and the programs which they start."""

from __future__ import annotations

import signal


def restore() -> None:
    """Give SIGINT, SIGQUIT and SIGHUP their usual effect on this process and on those that it starts.

    Shells ignore some of them in background processes, and nohup SIGHUP.  Programs inherit that, and the tests of
    Ctrl-C would wait for an end that does not come.
    """
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
