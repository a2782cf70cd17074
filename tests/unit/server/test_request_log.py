"""Which requests the request log writes, and when."""

from __future__ import annotations

import logging

import pytest

from kctl.config.dynamic import ConfigView
from kctl.server.requests.context import Peer, RequestContext
from kctl.server.requests.recorder import ConnectionTiming, Measuring
from kctl.server.requests.request_log import RequestLog


class Loop:
    """A request log with its properties, on a clock of the test; `used` is what a dispatcher would call."""

    def __init__(self, **properties: str) -> None:
        self.now_s = 100.0
        self.used: RequestLog | None = None
        self.measuring = Measuring()
        self.timing = ConnectionTiming(self.measuring)
        self.configs = ConfigView({})
        self.log = RequestLog(self.configs, lambda: self.now_s, self.measuring, self.use)
        self.log.refresh()
        self.configs.subscribe(self.log.refresh)
        self.set(**properties)

    def use(self, request_log: RequestLog | None) -> None:
        self.used = request_log

    def set(self, **properties: str) -> None:
        named = {f"request.log.{name}": text for name, text in properties.items()}
        assert self.configs.set_dynamic_default(named) == []

    def request(self, taking_s: float = 0.0, *, has_response: bool = True) -> RequestContext:
        """One request whose response is sent after this time."""
        peer = Peer("/10.0.0.7", "EXTERNAL", "User:alice", timing=self.timing)
        context = RequestContext(9, 7, "app", peer, api_name="produce")
        if self.used is not None:
            self.used.begin(context, 1_240)
            self.used.ready(context, has_response=has_response)
        self.now_s += taking_s
        if self.timing.unsent:
            self.timing.sent(self.now_s)
        return context


@pytest.fixture(autouse=True)
def level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kctl.request")


def test_while_it_is_off_nothing_is_measured(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    assert loop.used is None
    assert not loop.measuring.is_on
    assert loop.request().times is None
    assert caplog.records == []


def test_all_requests_are_written_when_their_responses_are_sent(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop(mode="all")
    loop.request(0.5)
    loop.request(has_response=False)
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith(
        "request api=Produce version=9 correlation_id=7 client_id=app principal=User:alice listener=EXTERNAL "
        "peer=/10.0.0.7 security_protocol=PLAINTEXT request_bytes=1240 response_bytes=0 total_ms=500.0 "
    )
    assert first.endswith("send_ms=500.0")
    assert "total_ms=0.0 " in second


def test_slow_requests_are_written_from_the_threshold_on(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop(mode="slow", **{"slow.ms": "250"})
    for taking_s in (0.0, 0.125, 0.25, 5.0):
        loop.request(taking_s)
    assert [record.getMessage().partition("total_ms=")[2].split()[0] for record in caplog.records] == [
        "250.0",
        "5000.0",
    ]


def test_one_request_of_a_number_is_written(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop(mode="sampled", **{"sample.requests": "10"})
    contexts = [loop.request() for _ in range(100)]
    assert len(caplog.records) == 10
    assert sum(context.times is not None for context in contexts) == 10, "the others cost no reading of the clock"


def test_a_request_under_way_when_the_log_is_turned_off_is_not_written(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop(mode="all")
    context = RequestContext(9, 7, "app", Peer("/10.0.0.7", "EXTERNAL", timing=loop.timing), api_name="produce")
    assert loop.used is not None
    loop.used.begin(context, 1)
    loop.used.ready(context, has_response=True)
    loop.set(mode="off")
    loop.timing.sent(loop.now_s)
    assert caplog.records == []
    assert loop.timing.unsent == []
    assert loop.used is None


@pytest.mark.parametrize(("level", "is_used"), [(logging.DEBUG, True), (logging.INFO, False)])
def test_the_level_debug_of_the_logger_writes_all(
    caplog: pytest.LogCaptureFixture, level: int, *, is_used: bool
) -> None:
    loop = Loop()
    caplog.set_level(level, "kctl.request")
    loop.configs.notify()
    assert (loop.used is not None) is is_used


def test_a_level_above_information_turns_it_off(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "kctl.request")
    assert Loop(mode="all").used is None
