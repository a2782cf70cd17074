"""Our broker as it is measured: a program of its own, with its own start and its own memory."""

from __future__ import annotations

import functools

from tests.peers import kctl_broker as peers

kctl_broker = functools.partial(peers.kctl_broker, run_by=peers.OWN_PROGRAM)
"""As that of the tests, which fork their brokers from a process that has imported kctl."""
