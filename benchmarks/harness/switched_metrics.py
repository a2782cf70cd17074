"""Runs a command line of kctl whose broker records requests for metrics after SIGRTMIN, and not after SIGRTMIN+1.

    python -m benchmarks.harness.switched_metrics python -m kctl broker start ...

Two processes that execute the same code differ by several percent, depending on where their objects are in memory.
What metrics cost is less than that, and has to be measured in one process.
"""

from __future__ import annotations

import signal
import sys
from typing import Any

from kctl.cli import main
from kctl.server.network.acceptor import Acceptor
from kctl.server.requests.dispatch import Dispatcher

_found: dict[type, Any] = {}
_recorders: list[Any] = []


def note_instances(kind: type) -> None:
    """Keeps the latest instance of a class."""
    make = kind.__init__  # type: ignore[misc]

    def made(self: Any, *arguments: Any, **named: Any) -> None:
        make(self, *arguments, **named)
        _found[kind] = self

    kind.__init__ = made  # type: ignore[misc]


def switch(number: int, _: object) -> None:
    """Requests are recorded, or not."""
    dispatcher, acceptor = _found[Dispatcher], _found[Acceptor]
    if dispatcher.recorder is not None:
        _recorders[:] = [dispatcher.recorder]
    dispatcher.recorder = _recorders[0] if number == signal.SIGRTMIN else None
    measuring = acceptor._settings.measuring  # noqa: SLF001 - a broker does not switch metrics
    measuring.switch(for_metrics=dispatcher.recorder is not None)


if __name__ == "__main__":
    for each in (Dispatcher, Acceptor):
        note_instances(each)
    signal.signal(signal.SIGRTMIN, switch)
    signal.signal(signal.SIGRTMIN + 1, switch)
    sys.exit(main(sys.argv[sys.argv.index("kctl") + 1 :]))
