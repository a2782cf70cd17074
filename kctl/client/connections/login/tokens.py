"""Tokens for OAUTHBEARER and tickets for GSSAPI."""

from __future__ import annotations

import base64
import binascii
import contextlib
import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from kctl.client.connections.login.sasl_settings import OAuthSettings, SaslSettings
from kctl.errors import AuthenticationFailed, ConfigError, KctlError
from kctl.limits import Subject, bound
from kctl.security.sasl_client import GssapiClient, SaslClient
from kctl.system.user_files import read_regular

TOKEN_BYTES_MAX = bound(
    Subject.COMMANDS,
    "OAuth token that a client sends, and response of the token endpoint that it reads",
    1 << 18,
    "bytes",
    on_excess="the authentication fails before the rest is read",
)


# A deadline for a whole HTTP request: the timeout of a socket restarts with each byte.


@contextlib.contextmanager
def shut_down_after(timeout_s: float, sock: socket.socket, expired: threading.Event) -> Iterator[None]:
    """Close the connection at the deadline and set `expired`."""

    def give_up() -> None:
        expired.set()
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    watch = threading.Timer(timeout_s, give_up)
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()


# Tokens for OAUTHBEARER: read from a file, fetched from a token endpoint, or unsigned with configured claims.
#
# Kafka: FileJwtRetriever, HttpJwtRetriever, OAuthBearerUnsecuredLoginCallbackHandler (3.1 to 4.1).


_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""RFC 6750, section 2.1."""
_ERROR_CHARACTERS_MAX = 200
_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"


class TokenSource:
    """The tokens of one client.  A token is reused until most of its lifetime has passed.  Thread-safe."""

    def __init__(self, settings: OAuthSettings, now_s: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._now_s = now_s
        self._lock = threading.Lock()
        self._token = ""
        self._reused_until_s = 0.0

    def token(self, timeout_ms: int) -> str:
        """Return a valid token.  May block for `timeout_ms`.  Raises AuthenticationFailed."""
        settings = self._settings
        if settings.unsecured is not None:
            return unsecured_token(settings.unsecured, self._now_s())
        if settings.file is not None:
            return _token_of_file(settings.file)
        with self._lock:
            now_s = self._now_s()
            if not self._token or now_s >= self._reused_until_s:
                self._token, lifetime_s = _fetch(settings, timeout_ms)
                self._reused_until_s = now_s + lifetime_s * settings.reused_part
            return self._token


def unsecured_token(options: Mapping[str, str], now_s: float) -> str:
    """Return a token with `"alg": "none"` and the claims in the options `unsecuredLogin...` of the login module.

    KIP-255.
    """
    claims: dict[str, Any] = {}
    for name, value in options.items():
        kind, _, claim = name.removeprefix("unsecuredLogin").partition("Claim_")
        if claim:
            claims[claim] = _claim(name, kind, value)
    lifetime_s = _claim("unsecuredLoginLifetimeSeconds", "Number", options.get("unsecuredLoginLifetimeSeconds", "3600"))
    # In whole seconds, because Kafka refuses a token from the future, and its clock has no fractions of a millisecond.
    issued_s = int(now_s)
    claims = {"iat": issued_s, "exp": issued_s + lifetime_s, **claims}
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


def _claim(name: str, kind: str, value: str) -> Any:
    if kind == "List":
        return value[1:].split(value[:1]) if value else []
    if kind != "Number":
        return value
    try:
        return float(value)
    except ValueError:
        raise ConfigError("sasl.jaas.config", "[hidden]", f"the option {name} is not a number") from None


def _encoded(document: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()


def _token_of_file(path: str) -> str:
    try:
        data = read_regular(path)
    except OSError as error:
        raise AuthenticationFailed(f"cannot read the token in {path}: {error.strerror}") from None
    return _checked(data.decode(errors="replace").strip(), path)


def _checked(token: object, source: str) -> str:
    """Return the token in the text.

    The text of AuthenticationFailed does not contain it, because it may be a secret.
    """
    if not isinstance(token, str) or len(token) > TOKEN_BYTES_MAX or not _TOKEN.fullmatch(token):
        raise AuthenticationFailed(f"{source} contains no token")
    return token


def _fetch(settings: OAuthSettings, timeout_ms: int) -> tuple[str, float]:
    """Return the token of the endpoint and its lifetime in seconds.  One request, no redirects, no proxy."""
    assert settings.url is not None
    url = urlsplit(settings.url)
    where = f"the token endpoint {url.scheme}://{url.netloc}{url.path}"
    end_s = time.monotonic() + timeout_ms / 1000
    connection = _connection(settings, min(timeout_ms, settings.connect_timeout_ms) / 1000)
    expired = threading.Event()
    try:
        connection.connect()
        read_s = max(0.0, min(settings.read_timeout_ms / 1000, end_s - time.monotonic()))
        with shut_down_after(read_s, connection.sock, expired):
            status, body = _request(connection, settings)
    except (OSError, http.client.HTTPException) as error:
        if expired.is_set() or isinstance(error, TimeoutError):
            raise AuthenticationFailed(f"{where} did not respond in time; check {_ENDPOINT}") from None
        reason = getattr(error, "verify_message", None) or getattr(error, "strerror", None) or str(error)
        raise AuthenticationFailed(f"{where} cannot be used: {reason}; check {_ENDPOINT}") from None
    finally:
        connection.close()
    if expired.is_set():
        raise AuthenticationFailed(f"{where} did not respond in time; check {_ENDPOINT}")
    if status != http.client.OK:
        raise AuthenticationFailed(f"{where} refused the client: {_reason(status, body)}")
    return _token_of_response(body, where)


def _connection(settings: OAuthSettings, timeout_s: float) -> http.client.HTTPConnection:
    assert settings.url is not None
    url = urlsplit(settings.url)
    assert url.hostname is not None
    if url.scheme == "http":
        return http.client.HTTPConnection(url.hostname, url.port, timeout=timeout_s)
    from kctl.security.tls import TlsSettings, client_context  # noqa: PLC0415 - imports ssl

    context = client_context(TlsSettings.of(settings.tls))
    return http.client.HTTPSConnection(url.hostname, url.port, timeout=timeout_s, context=context)


def _request(connection: http.client.HTTPConnection, settings: OAuthSettings) -> tuple[int, bytes]:
    assert settings.url is not None
    url = urlsplit(settings.url)
    form = {"grant_type": "client_credentials"}
    if settings.scope:
        form["scope"] = settings.scope
    headers = {
        "Accept": "application/json",
        "Authorization": f"Basic {_basic(settings)}",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    connection.request("POST", target, urlencode(form), headers)
    with contextlib.closing(connection.getresponse()) as response:
        body = response.read(TOKEN_BYTES_MAX + 1)
    if len(body) > TOKEN_BYTES_MAX:
        raise http.client.HTTPException("the response is too long")
    return response.status, body


def _basic(settings: OAuthSettings) -> str:
    user, secret = settings.client_id, settings.client_secret
    if settings.encodes_header:
        user, secret = quote(user, safe=""), quote(secret, safe="")
    return base64.b64encode(f"{user}:{secret}".encode()).decode()


def _token_of_response(body: bytes, where: str) -> tuple[str, float]:
    try:
        document = json.loads(body)
        token = _checked(document["access_token"], where)
        lifetime_s = float(document.get("expires_in") or 0)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise AuthenticationFailed(f"{where} returned no access_token") from None
    return token, max(0.0, lifetime_s or _lifetime_s(token))


def _lifetime_s(token: str) -> float:
    """Return the remaining lifetime by the claim `exp`; 0, so that the token is not reused, if that cannot be read."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"]) - time.time()
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, binascii.Error):
        return 0.0


def _reason(status: int, body: bytes) -> str:
    """Return the status and the error code of the response.  RFC 6749, section 5.2."""
    try:
        document = json.loads(body)
        text = ": ".join(str(document[name]) for name in ("error", "error_description") if document.get(name))
    except (ValueError, TypeError, AttributeError, RecursionError):
        text = ""
    return f"status {status}{f', {text[:_ERROR_CHARACTERS_MAX]}' if text else ''}"


# Kerberos tickets for GSSAPI, through the optional package gssapi.


class _KerberosClient:
    """GssapiClient whose errors are those of kctl."""

    def __init__(self, context: Any, gssapi_error: type[Exception]) -> None:
        self._client = GssapiClient(context)
        self._gssapi_error = gssapi_error

    def first(self) -> bytes:
        try:
            return self._client.first()
        except self._gssapi_error as error:
            raise KctlError(_text(error)) from None

    def respond(self, message: bytes) -> bytes | None:
        try:
            return self._client.respond(message)
        except self._gssapi_error as error:
            raise KctlError(_text(error)) from None


def gssapi_client(settings: SaslSettings, host: str) -> SaslClient:
    """Return the client's side of GSSAPI with the broker at `host`.

    Uses the key tab of the settings, else the ticket cache.  Raises ImportError without the package gssapi, and
    AuthenticationFailed.
    """
    import gssapi  # noqa: PLC0415 - optional

    failure: type[Exception] = gssapi.exceptions.GSSError
    service = gssapi.Name(f"{settings.service_name}@{host}", gssapi.NameType.hostbased_service)
    try:
        name = gssapi.Name(settings.principal, gssapi.NameType.kerberos_principal) if settings.principal else None
        store = _store(settings)
        credentials = gssapi.Credentials(name=name, usage="initiate", store=store) if name or store else None
        context = gssapi.SecurityContext(name=service, creds=credentials, usage="initiate")
    except failure as error:
        raise AuthenticationFailed(f"authentication with GSSAPI failed: {_text(error)}") from None
    return _KerberosClient(context, failure)


def _store(settings: SaslSettings) -> dict[str, str] | None:
    """Return where credentials come from, for gssapi; None for the user's ticket cache.

    Tickets from a key tab stay in memory: the user's cache may have those of another principal, which the library
    refuses to replace.  Java's login module does not look into the cache either.
    """
    if not settings.keytab:
        return None
    return {
        "client_keytab": f"FILE:{settings.keytab}",
        "ccache": f"MEMORY:kctl {settings.principal} {settings.keytab}",
    }


def _text(error: Exception) -> str:
    return " ".join(str(error).split())
