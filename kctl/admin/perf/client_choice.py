"""Chooses between the two clients that produce and consume: librdkafka and the one of this package."""

from __future__ import annotations

import importlib.util
from typing import Literal

from kctl.admin.perf.load_client import LoadClient
from kctl.client.consuming.fetching import FetchLimits
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.settings import ClientSettings
from kctl.errors import UsageError

ClientName = Literal["auto", "librdkafka", "kctl"]


def choose_client(
    wanted: ClientName,
    settings: ClientSettings,
    limits: FetchLimits = FetchLimits(),  # noqa: B008 - immutable
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> LoadClient:
    """Return the client of that name; auto is librdkafka if it is installed and the listener has no TLS and SASL.

    Raises UsageError if librdkafka is required and cannot be used.
    """
    has_librdkafka = importlib.util.find_spec("confluent_kafka") is not None
    if wanted == "librdkafka" and not has_librdkafka:
        raise UsageError("librdkafka is not installed; run: pip install 'kctl-kafka[perf]'")
    if wanted == "librdkafka" and settings.security is not None:
        raise UsageError("--client librdkafka is for listeners without TLS and SASL; use --client kctl")
    if wanted == "kctl" or not has_librdkafka or settings.security is not None:
        from kctl.admin.perf.own_client import OwnClient  # noqa: PLC0415 - only one of the two is needed

        return OwnClient(settings, limits, isolation)
    from kctl.admin.perf.librdkafka import Librdkafka  # noqa: PLC0415 - an extra

    return Librdkafka(settings, limits, isolation)
