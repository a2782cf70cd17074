"""A dispatcher without quotas."""

from __future__ import annotations

import time

from kctl.config.dynamic import ConfigView
from kctl.server.loop.tasks import SystemClock
from kctl.server.network.dispatch import Dispatcher
from kctl.server.peers.connections import address_of
from kctl.server.requests.quotas.client_quotas import ClientQuotas


def quota_free_dispatcher() -> Dispatcher:
    """Serves nothing yet."""
    clock = SystemClock()
    return Dispatcher(ClientQuotas(ConfigView({}).current, clock, address_of), time.monotonic)
