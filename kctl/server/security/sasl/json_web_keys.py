"""The keys that verify the signatures of tokens (JSON Web Key Sets, RFC 7517), read from a file or an HTTPS address.

They are read at start and again after `sasl.oauthbearer.jwks.endpoint.refresh.ms`, in a thread; a failed read keeps the
keys, and is repeated after increasing pauses.  A token with an unknown key id also causes a read, at most one in
UNKNOWN_KEY_READ_INTERVAL_MS, because any client can send such tokens.

Kafka: RefreshingHttpsJwks (3.1), JwksFileVerificationKeyResolver.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kctl.errors import ConfigError, KctlError

if TYPE_CHECKING:
    from jwt import PyJWK
from kctl.limits import Subject, bound

JWKS_BYTES_MAX = bound(
    Subject.AUTHENTICATION,
    "key set that verifies tokens",
    1 << 20,
    "bytes",
    on_excess="the keys are not replaced, and the failure is logged",
)
JWKS_KEYS_MAX = bound(
    Subject.AUTHENTICATION,
    "keys in a key set that verifies tokens",
    1_000,
    "keys",
    on_excess="the keys are not replaced, and the failure is logged",
)
JWKS_FETCH_MS_MAX = bound(
    Subject.AUTHENTICATION,
    "time to fetch a key set that verifies tokens",
    10_000,
    "ms",
    on_excess="the keys are not replaced, and the failure is logged",
)


log = logging.getLogger(__name__)

UNKNOWN_KEY_READ_INTERVAL_MS = 10_000
_PROPERTY = "sasl.oauthbearer.jwks.endpoint.url"
_PIECE_BYTES = 1 << 16
_RSA_BITS_MIN = 2048
"""RFC 7518, section 3.3; the same in Kafka's jose4j."""
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}

_ALGORITHMS = {
    ("RSA", None): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("OKP", "Ed448"): ("EdDSA",),
}
"""Algorithms by type and curve of the key.  Only those with public keys: `none` needs no key at all, and with HS256
every party that can verify a token could also create one."""

Keys = dict[str, dict[str, "PyJWK"]]
"""By key id and algorithm."""


class KeysUnreadable(KctlError):
    """The key set cannot be read or parsed."""


@dataclass(frozen=True, slots=True)
class Refresh:
    """When the keys are read again."""

    interval_ms: int
    retry_ms: int
    retry_ms_max: int


class JsonWebKeys:
    """Call `start` or `start_reading` before use and `stop` at the end."""

    def __init__(self, url: str, refresh: Refresh, monotonic_ms: Callable[[], int]) -> None:
        """Raise ConfigError for an address that is neither a file nor HTTPS, nor HTTP on the loopback interface."""
        check_url(url)
        self._url = url
        self._refresh = refresh
        self._monotonic_ms = monotonic_ms
        self._keys: Keys = {}
        self._task: asyncio.Task[None] | None = None
        self._has_read = False
        """Whether the first read has ended."""
        self._read_now = asyncio.Event()
        self._unknown_key_read_ms: int | None = None

    async def check_file(self) -> None:
        """Read the keys if they are in a file.  Raises ConfigError if it cannot be used."""
        if self._url.startswith("file:"):
            try:
                await self._read()
            except KeysUnreadable as error:
                raise ConfigError(_PROPERTY, self._url, str(error)) from None

    async def start(self) -> None:
        """Read the keys.  Raises ConfigError for an unusable file; an HTTP server may start to respond later."""
        await self.check_file()
        try:
            if not self._has_read:
                await self._read()
        except KeysUnreadable as error:
            log.warning(
                "cannot read the keys for tokens, no token is accepted until they are read url=%s error=%s retry_ms=%d",
                _without_secrets(self._url),
                error,
                self._refresh.retry_ms,
            )
        self.start_reading()

    def start_reading(self) -> None:
        """Read the keys from now on; no token is accepted before the first successful read."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep_reading(), name="json-web-keys")

    def stop(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """Stop reading, and wait until it has stopped."""
        self.stop()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def key(self, key_id: str | None, algorithm: str) -> PyJWK | None:
        """Return the key with that id for the algorithm; without an id the only key of the set.

        An unknown id causes a read.
        """
        if key_id is None:
            return next(iter(self._keys.values())).get(algorithm) if len(self._keys) == 1 else None
        found = self._keys.get(key_id)
        if found is None:
            self._read_for_unknown_key()
            return None
        return found.get(algorithm)

    def _read_for_unknown_key(self) -> None:
        now_ms = self._monotonic_ms()
        last_ms = self._unknown_key_read_ms
        if last_ms is None or now_ms - last_ms >= UNKNOWN_KEY_READ_INTERVAL_MS:
            self._unknown_key_read_ms = now_ms
            self._read_now.set()

    async def _keep_reading(self) -> None:
        pause_ms = self._refresh.interval_ms if self._keys else self._refresh.retry_ms
        if not self._has_read:
            self._read_now.set()
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._read_now.wait(), pause_ms / 1000)
            self._read_now.clear()
            try:
                await self._read()
                pause_ms = self._refresh.interval_ms
            except KeysUnreadable as error:
                pause_ms = min(max(2 * pause_ms, self._refresh.retry_ms), self._refresh.retry_ms_max)
                log.warning(
                    "cannot read the keys for tokens, the former ones stay in use url=%s keys=%d error=%s retry_ms=%d",
                    _without_secrets(self._url),
                    len(self._keys),
                    error,
                    pause_ms,
                )

    async def _read(self) -> None:
        """Read the keys, or raise KeysUnreadable."""
        self._has_read = True
        self._keys = await asyncio.get_running_loop().run_in_executor(None, read_keys, self._url)


def check_url(url: str) -> None:
    """Raise ConfigError for an address that is neither a file nor HTTPS, nor HTTP on the loopback interface, and for
    one with a user: Python's HTTP client would take the user for a part of the host.
    """
    parts = urllib.parse.urlsplit(url)
    if "@" in parts.netloc:
        raise ConfigError(_PROPERTY, _without_secrets(url), "must not contain a user or a password: remove them")
    if parts.scheme == "file" and parts.path and parts.netloc in {"", "localhost"}:
        return
    if parts.hostname and (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)):
        return
    raise ConfigError(
        _PROPERTY,
        _without_secrets(url),
        "write file:///path, or https://host/path (http only for the loopback address)",
    )


def read_keys(url: str) -> Keys:
    """Return the usable keys by id.  Blocks, for at most JWKS_FETCH_MS_MAX.  Raises KeysUnreadable."""
    try:
        data = _file(url) if url.startswith("file:") else _fetched(url)
    except (OSError, ValueError, urllib.error.URLError) as error:
        raise KeysUnreadable(f"{_without_secrets(url)}: {error}") from None
    return parse_keys(data)


def parse_keys(data: bytes) -> Keys:
    """Return the usable keys of a key set by id.  Raises KeysUnreadable."""
    from jwt import PyJWK  # noqa: PLC0415 - with its cryptography it takes 50 ms to import
    from jwt.exceptions import PyJWTError  # noqa: PLC0415

    try:
        listed: Any = json.loads(data)["keys"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise KeysUnreadable("the key set is not JSON with a list of keys") from None
    if not isinstance(listed, list) or len(listed) > JWKS_KEYS_MAX:
        raise KeysUnreadable(f"the key set is not a list of at most {JWKS_KEYS_MAX} keys")
    keys: Keys = {}
    for position, listed_key in enumerate(listed):
        if not isinstance(listed_key, dict) or listed_key.get("use", "sig") != "sig":
            continue
        kind, curve = str(listed_key.get("kty")), listed_key.get("crv")
        possible = _ALGORITHMS.get((kind, None if kind == "RSA" else str(curve)), ())
        by_algorithm = {}
        for algorithm in possible:
            if listed_key.get("alg", algorithm) == algorithm:
                try:
                    key = PyJWK(listed_key, algorithm)
                except (PyJWTError, ValueError, TypeError, KeyError):
                    break
                if kind != "RSA" or key.key.key_size >= _RSA_BITS_MIN:
                    by_algorithm[algorithm] = key
        if by_algorithm:
            key_id = listed_key.get("kid")
            # Keys of different types may have the same id (RFC 7517, section 4.5).
            keys.setdefault(key_id if isinstance(key_id, str) else f"({position})", {}).update(by_algorithm)
    if not keys:
        raise KeysUnreadable(
            f"the key set has no public key for signatures; RSA keys with fewer than {_RSA_BITS_MIN} bits are not used"
        )
    return keys


def _file(url: str) -> bytes:
    path = Path(urllib.request.url2pathname(urllib.parse.urlsplit(url).path))
    with path.open("rb") as file:
        return _bounded(file.read(JWKS_BYTES_MAX + 1))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect could lead to an address that `check_url` refuses."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _fetched(url: str) -> bytes:
    deadline_s = time.monotonic() + JWKS_FETCH_MS_MAX / 1000
    opener = urllib.request.build_opener(_NoRedirects)
    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310 - see check_url
    data = b""
    try:
        opened = opener.open(request, timeout=JWKS_FETCH_MS_MAX / 1000)
    except urllib.error.HTTPError as error:
        error.close()  # It is a response too.
        raise
    with opened as response:
        while piece := response.read1(_PIECE_BYTES):
            data = _bounded(data + piece)
            if time.monotonic() > deadline_s:
                raise OSError(f"not read within {JWKS_FETCH_MS_MAX} ms")
    return data


def _bounded(data: bytes) -> bytes:
    if len(data) > JWKS_BYTES_MAX:
        raise ValueError(f"more than {JWKS_BYTES_MAX} bytes")
    return data


def _without_secrets(url: str) -> str:
    """Return the address without its user and its query, either of which may contain a password."""
    parts = urllib.parse.urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
