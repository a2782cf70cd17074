"""Runs a command line of kctl whose broker switches parts on and off when it receives a signal.

    python -m benchmarks.harness.switched_broker python -m kctl broker start ...

METRICS and ACCESS are the signals that switch on; the next one switches off.  Two processes that execute the same code
differ by several percent, depending on where their objects are in memory.  What these parts cost is less than that, and
has to be measured in one process.
"""

from __future__ import annotations

import signal
import sys
from typing import Any

from kctl.cli import main
from kctl.server.network.acceptor import Acceptor
from kctl.server.network.dispatch import Dispatcher
from kctl.server.requests.context import EVERYTHING_ALLOWED

_found: dict[type, Any] = {}
_saved: dict[str, Any] = {}
METRICS, ACCESS = signal.SIGRTMIN, signal.SIGRTMIN + 2


def note_instances(kind: type) -> None:
    """Keeps the latest instance of a class."""
    make = kind.__init__  # type: ignore[misc]

    def made(self: Any, *arguments: Any, **named: Any) -> None:
        make(self, *arguments, **named)
        _found[kind] = self

    kind.__init__ = made  # type: ignore[misc]


def switch_metrics(number: int, _: object) -> None:
    """Requests are recorded for metrics, or not."""
    dispatcher, acceptor = _found[Dispatcher], _found[Acceptor]
    recorder = _saved.setdefault("recorder", dispatcher.recorder)
    dispatcher.recorder = recorder if number == METRICS else None
    measuring = acceptor._settings.measuring  # noqa: SLF001 - a broker does not switch metrics
    measuring.switch(for_metrics=dispatcher.recorder is not None)


def switch_access(number: int, _: object) -> None:
    """Requests are authorized and counted for quotas, or not."""
    dispatcher = _found[Dispatcher]
    access = _saved.setdefault("access", dispatcher.access)
    dispatcher.access = access if number == ACCESS else EVERYTHING_ALLOWED
    dispatcher._quotas.has_limits = number == ACCESS  # noqa: SLF001 - a broker does not switch quotas


if __name__ == "__main__":
    for class_ in (Dispatcher, Acceptor):
        note_instances(class_)
    for first, handler in ((METRICS, switch_metrics), (ACCESS, switch_access)):
        signal.signal(first, handler)
        signal.signal(first + 1, handler)
    sys.exit(main(sys.argv[sys.argv.index("kctl") + 1 :]))
