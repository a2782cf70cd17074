"""A dispatcher without quotas."""

from __future__ import annotations

import time

from kctl.config.dynamic import ConfigView
from kctl.server.clock import SystemClock
from kctl.server.host_names import address_of
from kctl.server.quotas.client_quotas import ClientQuotas
from kctl.server.requests.dispatch import Dispatcher


def quota_free_dispatcher() -> Dispatcher:
    """Serves nothing yet."""
    clock = SystemClock()
    return Dispatcher(ClientQuotas(ConfigView({}).current, clock, address_of), time.monotonic)
