"""Writes a line per request, if request.log.mode selects it.  Kafka: RequestChannel.Request and kafka.request.logger.

A line has the client, the sizes and the time of each stage; never a payload.  While the mode is off, the dispatcher has
no request log and no time is read.

Owner: event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from kctl.config.dynamic import ConfigView
from kctl.protocol import registry
from kctl.server.requests.context import RequestContext
from kctl.server.requests.recorder import Measuring, RequestTimes

log = logging.getLogger("kctl.request")

_LINE = (
    "request api=%s version=%d correlation_id=%d client_id=%s principal=%s listener=%s peer=%s security_protocol=%s "
    "request_bytes=%d response_bytes=%d total_ms=%s queue_ms=%s local_ms=%s remote_ms=%s throttle_ms=%d "
    "response_queue_ms=%s send_ms=%s"
)


class RequestLog:
    """Call `refresh` after a change of the properties or of the logger's level."""

    def __init__(
        self,
        configs: ConfigView,
        now_s: Callable[[], float],
        measuring: Measuring,
        use: Callable[[RequestLog | None], None],
    ) -> None:
        """`use` is called with the log when it is switched on, and with None when it is switched off."""
        self._configs = configs
        self._now_s = now_s
        self._measuring = measuring
        self._use = use
        self._mode = "off"
        self._slow_ms = 0
        self._sample_requests = 1
        self._seen = 0

    def refresh(self) -> None:
        """Take over the mode and the level in force."""
        config = self._configs.current
        is_enabled = log.isEnabledFor(logging.INFO)
        self._mode = "all" if log.isEnabledFor(logging.DEBUG) else config.request_log_mode if is_enabled else "off"
        self._slow_ms = config.request_log_slow_ms
        self._sample_requests = config.request_log_sample_requests
        self._measuring.switch(for_log=self._mode != "off")
        self._use(self if self._mode != "off" else None)

    def begin(self, context: RequestContext, request_bytes: int) -> None:
        """Begin a request that is about to be decoded; it gets times if it may be logged."""
        self._seen += 1
        if self._mode == "sampled" and self._seen % self._sample_requests:
            return
        if context.times is None:
            now_s = self._now_s()
            timing = context.peer.timing
            received_s = now_s if timing is None else timing.received_s or now_s
            context.times = RequestTimes(request_bytes, received_s, now_s)
        context.times.on_sent = partial(self._sent, context)

    def ready(self, context: RequestContext, *, has_response: bool) -> None:
        """Note that the response is encoded.

        The request is logged when it has been sent, or now if there is none to be sent.
        """
        times = context.times
        if times is None or times.on_sent is None:
            return
        if not times.ready_s:
            times.ready_s = times.flushed_s = times.sent_s = self._now_s()
        timing = context.peer.timing
        if not has_response or timing is None or not timing.measuring.is_on:
            times.on_sent(times)
        elif not timing.unsent or timing.unsent[-1] is not times:  # The recorder of metrics may have added it.
            timing.unsent.append(times)

    def _sent(self, context: RequestContext, times: RequestTimes) -> None:
        total_ms = (times.sent_s - times.received_s) * 1000
        if self._mode == "off" or (self._mode == "slow" and total_ms < self._slow_ms):
            return
        peer = context.peer
        log.info(
            _LINE,
            registry.api_named(context.api_name).kafka_name,
            context.api_version,
            context.correlation_id,
            context.client_id,
            peer.principal,
            peer.listener,
            peer.client_host,
            peer.security_protocol,
            times.request_bytes,
            times.response_bytes,
            round(total_ms, 3),
            round(times.queue_ms, 3),
            round(times.local_ms, 3),
            round(times.remote_ms, 3),
            times.throttle_ms,
            round(times.response_queue_ms, 3),
            round(times.send_ms, 3),
        )
