"""When a client asks for its subscription and pushes its metrics, and what a response means.  Pure.

`step` returns the one thing to do next; its outcome is the next event.  Intervals, the jitter of the first push and the
effects of errors are those of Kafka's ClientTelemetryReporter, except that an error which is repeated at once in
Kafka's client is repeated at once only after a push that was accepted.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from kctl.errors import ErrorCode
from kctl.limits import Subject, bound
from kctl.model import ZERO_UUID
from kctl.records.compression import Codec

DEFAULT_INTERVAL_MS = 300_000
"""Kafka's, where the broker gives none, and after a request without a response."""
JITTER_MIN, JITTER_MAX = 0.5, 1.5
"""The first push comes after the interval times a number from this range."""
PUSH_INTERVAL_MS_MIN = bound(
    Subject.COMMANDS,
    "the interval between pushes of client telemetry",
    100,
    "ms",
    on_excess="a shorter interval of a broker is raised to it",
)
PREFIXES_MAX = bound(
    Subject.COMMANDS,
    "prefixes of metrics in a subscription of client telemetry",
    1_000,
    "prefixes",
    on_excess="the client sends no telemetry",
)
PUSH_BYTES_MAX = bound(
    Subject.COMMANDS,
    "metrics in one push of client telemetry",
    1 << 20,
    "bytes",
    on_excess="metrics of partitions and topics are left out",
)

PERMANENT = frozenset({ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_VERSION})
"""Errors that another attempt would get again."""
AT_ONCE = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
"""Errors after which the client gets its subscription at once."""
LATER = frozenset({ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.THROTTLING_QUOTA_EXCEEDED})
"""Errors after which it gets its subscription when the push interval is over."""


class Subscription(NamedTuple):
    """What the brokers subscribe to."""

    subscription_id: int
    prefixes: tuple[str, ...]
    """Of the names of metrics; "" or "*" for all, none for no metrics."""
    interval_ms: int
    bytes_max: int
    is_delta: bool
    codecs: tuple[int, ...]
    """The accepted ones, in the order of preference."""


# Events.


class TimeReached(NamedTuple):
    """The start, or the end of a wait."""


class SubscriptionReceived(NamedTuple):
    """The response to GetTelemetrySubscriptions."""

    error: ErrorCode
    client_instance_id: UUID
    subscription: Subscription
    jitter: float
    """From JITTER_MIN to JITTER_MAX."""


class PushReceived(NamedTuple):
    """The response to PushTelemetry."""

    error: ErrorCode


class NoResponse(NamedTuple):
    """The request had no response, or the broker does not serve it (`is_permanent`)."""

    is_permanent: bool = False


class Closing(NamedTuple):
    """The client is being closed."""


Event = TimeReached | SubscriptionReceived | PushReceived | NoResponse | Closing

# Actions.


class GetSubscription(NamedTuple):
    """Send GetTelemetrySubscriptions."""

    client_instance_id: UUID


class Push(NamedTuple):
    """Send PushTelemetry."""

    client_instance_id: UUID
    subscription: Subscription
    codec: Codec
    is_terminating: bool


class WaitUntil(NamedTuple):
    """Do nothing until this time."""

    at_ms: int


class Stop(NamedTuple):
    """Nothing is sent from now on; `reason` is empty if the client is closed."""

    reason: str = ""


Action = GetSubscription | Push | WaitUntil | Stop


@dataclass
class TelemetryState:
    """The state of one client."""

    client_instance_id: UUID = ZERO_UUID
    """Zero until the first response."""
    subscription: Subscription | None = None
    must_subscribe: bool = True
    """Whether the next request gets the subscription; otherwise it is a push."""
    due_ms: int = 0
    """When the next request is sent."""
    may_repeat_at_once: bool = True
    """Whether a push was accepted since the last request that was repeated at once."""
    refused_codecs: frozenset[int] = frozenset()
    is_closing: bool = False
    reason: str | None = None
    """Why nothing is sent any more."""


def step(state: TelemetryState, event: Event, now_ms: int) -> Action:
    """Note the event and return what to do next."""
    match event:
        case SubscriptionReceived():
            _subscribed(state, event, now_ms)
        case PushReceived(error):
            _pushed(state, error, now_ms)
        case NoResponse(is_permanent):
            state.must_subscribe = True
            state.due_ms = now_ms + DEFAULT_INTERVAL_MS
            if is_permanent:
                state.reason = "the brokers do not serve client telemetry"
        case Closing():
            return _closing(state)
        case TimeReached():
            pass
    if state.is_closing and state.reason is None:
        state.reason = ""
    if state.reason is not None:
        return Stop(state.reason)
    if now_ms < state.due_ms:
        return WaitUntil(state.due_ms)
    if state.must_subscribe or state.subscription is None:
        return GetSubscription(state.client_instance_id)
    return _push(state, state.subscription)


def _subscribed(state: TelemetryState, event: SubscriptionReceived, now_ms: int) -> None:
    if event.error is not ErrorCode.NONE:
        _failed(state, event.error, now_ms)
        return
    interval_ms = event.subscription.interval_ms
    interval_ms = max(PUSH_INTERVAL_MS_MIN, interval_ms) if interval_ms > 0 else DEFAULT_INTERVAL_MS
    subscription = state.subscription = event.subscription._replace(interval_ms=interval_ms)
    if event.client_instance_id != ZERO_UUID:
        state.client_instance_id = event.client_instance_id
    if len(subscription.prefixes) > PREFIXES_MAX:
        state.reason = f"the subscription has more than {PREFIXES_MAX} prefixes"
    state.must_subscribe = not subscription.prefixes
    state.due_ms = now_ms + (round(interval_ms * event.jitter) if subscription.prefixes else interval_ms)


def _pushed(state: TelemetryState, error: ErrorCode, now_ms: int) -> None:
    assert state.subscription is not None
    if error is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE:
        state.refused_codecs |= {_codec(state, state.subscription.codecs)}
    if error is not ErrorCode.NONE:
        _failed(state, error, now_ms)
        return
    state.may_repeat_at_once = True
    state.due_ms = now_ms + state.subscription.interval_ms


def _failed(state: TelemetryState, error: ErrorCode, now_ms: int) -> None:
    interval_ms = DEFAULT_INTERVAL_MS if state.subscription is None else state.subscription.interval_ms
    state.must_subscribe = True
    if error in AT_ONCE and state.may_repeat_at_once:
        state.may_repeat_at_once = False
        state.due_ms = now_ms
    elif error in AT_ONCE | LATER:
        state.due_ms = now_ms + interval_ms
    else:
        state.reason = f"{error.name}: {error.description}"


def _closing(state: TelemetryState) -> Action:
    """Return the terminating push if the subscription has metrics, as Kafka's client."""
    subscription = state.subscription
    is_first = not state.is_closing
    state.is_closing = True
    if is_first and state.reason is None and subscription is not None and subscription.prefixes:
        return _push(state, subscription)
    state.reason = state.reason or ""
    return Stop(state.reason)


def _push(state: TelemetryState, subscription: Subscription) -> Push:
    codec = _codec(state, subscription.codecs)
    return Push(state.client_instance_id, subscription, codec, is_terminating=state.is_closing)


def _codec(state: TelemetryState, accepted: Collection[int]) -> Codec:
    """Return the first accepted codec that was not refused; none if there is no other."""
    known = (Codec(number) for number in accepted if number in _CODECS and number not in state.refused_codecs)
    return next(known, Codec.NONE)


_CODECS = frozenset(Codec)
