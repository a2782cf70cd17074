"""OAUTHBEARER: clients present a JSON Web Token, whose signature, issuer, audience and times are verified.  KIP-768.

Kafka: OAuthBearerSaslServer, OAuthBearerValidatorCallbackHandler (3.1).

Owner: event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kctl.errors import KctlError
from kctl.security.sasl import ACKNOWLEDGEMENT, OAuthBearerError, invalid_token_message, parse_oauthbearer
from kctl.server.security.sasl.exchanges import USER, AuthenticationRefused
from kctl.server.security.sasl.json_web_keys import JsonWebKeys
from kctl.server.security.sasl.negotiation import Identity, TokenReply

_NAME_MAX = 1_000


class TokenInvalid(KctlError):
    """The token is not accepted.  The text contains no part of the token."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The claims that a token must have."""

    issuer: str | None
    """sasl.oauthbearer.expected.issuer; None accepts any."""
    audiences: tuple[str, ...]
    """sasl.oauthbearer.expected.audience: the token needs one of these; an empty list accepts any audience."""
    clock_skew_s: int
    subject_claim: str
    scope_claim: str


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a valid token."""

    name: str
    expiry_ms: int


class TokenVerifier:
    """Verifies tokens with the keys of a JsonWebKeys."""

    def __init__(
        self,
        keys: JsonWebKeys,
        rules: TokenRules,
        now_ms: Callable[[], int],
        accepts_unsigned: Callable[[], bool] = lambda: False,
    ) -> None:
        """`now_ms` is the wall clock; `accepts_unsigned` whether a token needs no signature, in a broker of a test."""
        self._keys = keys
        self._rules = rules
        self._now_ms = now_ms
        self._accepts_unsigned = accepts_unsigned

    def verify(self, token: str) -> Subject:
        """Return the subject of a valid token, in less than 1 ms.  Raises TokenInvalid."""
        import jwt  # noqa: PLC0415 - only brokers with OAUTHBEARER need it

        try:
            header = jwt.get_unverified_header(token)
            is_unsigned = header.get("alg") == "none" and token.endswith(".") and self._accepts_unsigned()
            key = None if is_unsigned else self._keys.key(header.get("kid"), str(header.get("alg")))
            if key is None and not is_unsigned:
                raise TokenInvalid("the key set has no key with the id and the algorithm in the token")
            # Times are checked below, by the broker's clock.
            claims = jwt.decode(
                token,
                key or "",
                algorithms=[] if key is None else [key.algorithm_name],
                audience=self._rules.audiences or None,
                issuer=self._rules.issuer,
                options={
                    "verify_signature": not is_unsigned,
                    "require": ["exp", *(["iss"] if self._rules.issuer else [])],
                    "verify_aud": bool(self._rules.audiences),
                    "verify_iss": self._rules.issuer is not None,
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_sub": False,
                },
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise TokenInvalid(f"the token is not valid: {type(error).__name__}") from None
        return self._subject(claims)

    def _subject(self, claims: dict[str, Any]) -> Subject:
        rules, now_s = self._rules, self._now_ms() / 1000
        expiry_s = _time(claims, "exp")
        assert expiry_s is not None
        if now_s >= expiry_s + rules.clock_skew_s:
            raise TokenInvalid("the token has expired")
        for name in ("nbf", "iat"):
            start_s = _time(claims, name)
            if start_s is not None and now_s < start_s - rules.clock_skew_s:
                raise TokenInvalid(f"the token is not valid yet ({name})")
        subject = claims.get(rules.subject_claim)
        if not isinstance(subject, str) or not subject.strip() or len(subject) > _NAME_MAX or not _is_text(subject):
            raise TokenInvalid(f"claim {rules.subject_claim} is not a name")
        scope = claims.get(rules.scope_claim, "")
        if not isinstance(scope, str) and not (
            isinstance(scope, list) and all(isinstance(scope_name, str) for scope_name in scope)
        ):
            raise TokenInvalid(f"claim {rules.scope_claim} is neither a string nor a list of strings")
        return Subject(subject, int(expiry_s * 1000))


def _is_text(name: str) -> bool:
    """Return whether the name can be encoded: JSON can escape half of a surrogate pair, which is not a character."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _time(claims: dict[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 53:
        raise TokenInvalid(f"claim {name} is not a time")
    return float(value)


class OAuthBearerExchange:
    """One message if the token is valid; else an error message, which the client acknowledges."""

    __slots__ = ("_now_ms", "_reason", "_verifier")

    def __init__(self, verifier: TokenVerifier, now_ms: Callable[[], int]) -> None:
        self._verifier = verifier
        self._now_ms = now_ms
        self._reason = ""

    def respond(self, token: bytes) -> TokenReply:
        """Handle the token, or the acknowledgement of an error message."""
        if self._reason:
            if token != ACKNOWLEDGEMENT:
                raise AuthenticationRefused(f"{self._reason}, and no acknowledgement of the error message")
            raise AuthenticationRefused(self._reason, '{"status":"invalid_token"}')
        try:
            message = parse_oauthbearer(token)
        except OAuthBearerError as error:
            raise AuthenticationRefused(str(error)) from None
        try:
            subject = self._verifier.verify(message.token)
        except TokenInvalid as error:
            self._reason = str(error)
            return TokenReply(invalid_token_message())
        if message.authorization_id not in ("", subject.name):
            raise AuthenticationRefused(
                "the client requested an authorization id that is different from the token's subject",
                "Authentication failed: Client requested an authorization id that is different from the token's "
                "principal name",
            )
        lifetime_ms = subject.expiry_ms - self._now_ms()
        return TokenReply(b"", Identity(f"{USER}:{subject.name}", lifetime_ms=lifetime_ms))
