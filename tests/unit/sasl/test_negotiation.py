"""The state machine of a SASL connection: each row of Kafka's behaviour, and any order of events."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.errors import ErrorCode
from kctl.server.security.sasl.negotiation import (
    Action,
    Close,
    Dispatch,
    Evaluate,
    Event,
    HandshakeRequested,
    Identity,
    Negotiation,
    Phase,
    Refuse,
    RequestReceived,
    SendMechanisms,
    SendToken,
    SendVersions,
    TokenReceived,
    TokenRefused,
    TokenReply,
    VersionsRequested,
    step,
)
from tests.rows import for_rows

ALICE = Identity("User:alice")
VERSIONS = VersionsRequested(is_accepted=True)
UNKNOWN_VERSION = VersionsRequested(is_accepted=False)
PLAIN = HandshakeRequested("PLAIN", 1)
PLAIN_V0 = HandshakeRequested("PLAIN", 0)
SCRAM = HandshakeRequested("SCRAM-SHA-256", 1)
TOKEN = TokenReceived(b"token")
MORE = TokenReply(b"challenge")
DONE = TokenReply(b"", ALICE)
PRODUCE = RequestReceived(0)
GENERIC = "Authentication failed during authentication due to invalid credentials with SASL mechanism PLAIN"


def played(*events: Event, max_reauth_ms: int = 0, now_ms: int = 0) -> tuple[Negotiation, Action]:
    """The state after the events and the last action."""
    state = Negotiation(("PLAIN", "SCRAM-SHA-256"), {"PLAIN": max_reauth_ms})
    for event in events:
        action = step(state, event, now_ms)
    return state, action


@for_rows(
    "events, action, phase",
    [
        ([VERSIONS], SendVersions(), Phase.VERSIONS_SENT),
        ([UNKNOWN_VERSION], SendVersions(), Phase.OPENED),
        ([UNKNOWN_VERSION, VERSIONS], SendVersions(), Phase.VERSIONS_SENT),
        ([PLAIN], SendMechanisms("PLAIN"), Phase.AUTHENTICATING),
        ([PLAIN_V0], SendMechanisms("PLAIN"), Phase.AUTHENTICATING),
        ([VERSIONS, PLAIN], SendMechanisms("PLAIN"), Phase.AUTHENTICATING),
        ([PLAIN, TOKEN], Evaluate(b"token"), Phase.AUTHENTICATING),
        ([PLAIN, TOKEN, MORE], SendToken(b"challenge"), Phase.AUTHENTICATING),
        ([PLAIN, TOKEN, MORE, TOKEN], Evaluate(b"token"), Phase.AUTHENTICATING),
        ([PLAIN, TOKEN, DONE], SendToken(b"", 0, is_complete=True), Phase.AUTHENTICATED),
        ([PLAIN, TOKEN, DONE, PRODUCE], Dispatch(), Phase.AUTHENTICATED),
        ([PLAIN, TOKEN, DONE, VERSIONS], Dispatch(), Phase.AUTHENTICATED),
        ([PLAIN, TOKEN, DONE, PLAIN], Dispatch(), Phase.AUTHENTICATED),
        ([PLAIN, TOKEN, DONE, TOKEN], Dispatch(), Phase.AUTHENTICATED),
    ],
)
def test_valid_events_lead_to_the_next_phase(events: list[Event], action: Action, phase: Phase) -> None:
    state, last = played(*events)
    assert (last, state.phase) == (action, phase)


@for_rows(
    "events, code, message",
    [
        ([PRODUCE], ErrorCode.NONE, None),
        ([TOKEN], ErrorCode.NONE, None),
        ([VERSIONS, VERSIONS], ErrorCode.NONE, None),
        ([VERSIONS, PRODUCE], ErrorCode.NONE, None),
        ([VERSIONS, TOKEN], ErrorCode.NONE, None),
        ([PLAIN, VERSIONS], ErrorCode.NONE, None),
        ([PLAIN, PLAIN], ErrorCode.ILLEGAL_SASL_STATE, None),
        ([PLAIN, PRODUCE], ErrorCode.NONE, None),
        ([HandshakeRequested("LDAP", 1)], ErrorCode.UNSUPPORTED_SASL_MECHANISM, None),
        ([HandshakeRequested("LDAP", 0)], ErrorCode.UNSUPPORTED_SASL_MECHANISM, None),
        ([HandshakeRequested("", 1)], ErrorCode.UNSUPPORTED_SASL_MECHANISM, None),
        ([HandshakeRequested("plain", 1)], ErrorCode.UNSUPPORTED_SASL_MECHANISM, None),
        ([PLAIN, TOKEN, TokenRefused("x")], ErrorCode.SASL_AUTHENTICATION_FAILED, GENERIC),
        ([PLAIN, TOKEN, TokenRefused("x", "text")], ErrorCode.SASL_AUTHENTICATION_FAILED, "text"),
        ([PLAIN_V0, TOKEN, TokenRefused("x", "text")], ErrorCode.NONE, None),
    ],
)
def test_refused_events_close_the_connection(events: list[Event], code: ErrorCode, message: str | None) -> None:
    state, action = played(*events)
    assert isinstance(action, Refuse)
    assert (action.code, action.message, state.phase) == (code, message, Phase.CLOSED)
    assert isinstance(step(state, VERSIONS, 0), Close)


class TestReauthentication:
    def session(self, *, lifetime_ms: int | None = None, max_reauth_ms: int = 60_000) -> tuple[Negotiation, Action]:
        identity = replace(ALICE, lifetime_ms=lifetime_ms)
        return played(PLAIN, TOKEN, TokenReply(b"", identity), max_reauth_ms=max_reauth_ms, now_ms=1_000_000)

    @pytest.mark.parametrize(
        ("lifetime_ms", "max_reauth_ms", "reported_ms"),
        [(None, 0, 0), (None, 60_000, 60_000), (500, 0, 500), (500, 60_000, 500), (90_000, 60_000, 60_000), (-5, 0, 0)],
    )
    def test_the_session_ends_with_the_credential_or_after_the_configured_time(
        self, lifetime_ms: int | None, max_reauth_ms: int, reported_ms: int
    ) -> None:
        state, action = self.session(lifetime_ms=lifetime_ms, max_reauth_ms=max_reauth_ms)
        assert action == SendToken(b"", reported_ms, is_complete=True)
        has_end = lifetime_ms is not None or max_reauth_ms > 0
        assert state.expires_ms == (1_000_000 + reported_ms if has_end else None)

    def test_an_expired_session_is_closed_at_the_next_request(self) -> None:
        state, _ = self.session()
        assert step(state, PRODUCE, 1_060_000) == Dispatch()
        assert isinstance(step(state, PRODUCE, 1_060_001), Close)
        assert state.phase is Phase.CLOSED

    def test_a_token_without_a_handshake_does_not_keep_an_expired_session_open(self) -> None:
        state, _ = self.session()
        assert step(state, TOKEN, 1_060_000) == Dispatch()
        assert isinstance(step(state, TOKEN, 1_060_001), Close)

    def test_a_client_may_authenticate_again_even_after_the_end(self) -> None:
        state, _ = self.session()
        assert step(state, PLAIN, 1_090_000) == SendMechanisms("PLAIN")
        assert step(state, TOKEN, 1_090_000) == Evaluate(b"token")
        assert step(state, DONE, 1_090_000) == SendToken(b"", 60_000, is_complete=True)
        assert step(state, PRODUCE, 1_150_000) == Dispatch()

    def test_requests_are_refused_while_the_client_authenticates_again(self) -> None:
        state, _ = self.session()
        step(state, PLAIN, 1_030_000)
        assert isinstance(step(state, PRODUCE, 1_030_000), Refuse)

    def test_not_more_than_once_a_second(self) -> None:
        state, _ = self.session()
        for event in (PLAIN, TOKEN, DONE):
            step(state, event, 1_010_000)
        assert step(state, PLAIN, 1_010_999) == Dispatch()
        assert step(state, PLAIN, 1_011_000) == SendMechanisms("PLAIN")

    def test_reauthentication_as_another_principal_is_refused(self) -> None:
        state, _ = self.session()
        step(state, PLAIN, 1_010_000)
        step(state, TOKEN, 1_010_000)
        action = step(state, TokenReply(b"", Identity("User:eve")), 1_010_000)
        assert isinstance(action, Refuse)
        assert action.message == "Cannot change principals during re-authentication from User.alice: User.eve"

    def test_reauthentication_with_another_mechanism_is_refused(self) -> None:
        """Kafka responds to the handshake, and closes the connection at the next token."""
        state, _ = self.session()
        assert step(state, SCRAM, 1_010_000) == SendMechanisms("SCRAM-SHA-256")
        action = step(state, TOKEN, 1_010_000)
        assert isinstance(action, Refuse)
        assert action.code is ErrorCode.NONE

    def test_the_error_for_a_refused_token_names_reauthentication(self) -> None:
        state, _ = self.session()
        step(state, PLAIN, 1_010_000)
        step(state, TOKEN, 1_010_000)
        action = step(state, TokenRefused("x"), 1_010_000)
        assert isinstance(action, Refuse)
        assert action.message == GENERIC.replace("during authentication", "during re-authentication")


EVENTS = st.sampled_from(
    [VERSIONS, UNKNOWN_VERSION, PLAIN, PLAIN_V0, SCRAM, HandshakeRequested("X", 1), TOKEN, PRODUCE]
)


@given(st.lists(st.tuples(EVENTS, st.integers(0, 100_000), st.booleans()), max_size=30), st.sampled_from([0, 50_000]))
def test_nothing_is_dispatched_before_a_mechanism_has_identified_the_client(
    clients: list[tuple[Event, int, bool]], max_reauth_ms: int
) -> None:
    """The invariant of the state machine, for any order of requests."""
    state = Negotiation(("PLAIN", "SCRAM-SHA-256"), {"PLAIN": max_reauth_ms})
    now_ms, is_identified = 0, False
    for event, pause_ms, is_genuine in clients:
        now_ms += pause_ms
        action = step(state, event, now_ms)
        if isinstance(action, Evaluate):
            assert state.phase is Phase.AUTHENTICATING
            action = step(state, DONE if is_genuine else TokenRefused("x"), now_ms)
            is_identified = is_identified or is_genuine
        if isinstance(action, Dispatch):
            assert is_identified
            assert event == TOKEN or isinstance(event, HandshakeRequested) or now_ms <= (state.expires_ms or now_ms)
        if isinstance(action, Refuse | Close):
            assert state.phase is Phase.CLOSED
