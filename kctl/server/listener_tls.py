"""The certificates of TLS listeners: loaded at start, and again when the configuration or a file changes.

A change that cannot be used is logged, and the old certificates stay in use.  Connections that are open keep theirs.
Stores are read in a thread, because deriving a key from a password takes time by design.

Kafka: SslFactory, DynamicBrokerConfig.DynamicListenerConfig (2.8).  Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kctl.config.dynamic import ConfigView
from kctl.config.listeners import listener_properties
from kctl.errors import ApiError, ConfigError, ErrorCode
from kctl.model import Endpoint
from kctl.security.principals import PrincipalRules
from kctl.security.tls import TlsSettings, server_context
from kctl.server.file_states import FileStates, states_of
from kctl.server.requests.context import ANONYMOUS
from kctl.server.schedule import run_every

log = logging.getLogger(__name__)

_FILES_CHECK_MS = 10_000


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The certificates of a listener that are in use."""

    settings: TlsSettings
    files: FileStates
    context: ssl.SSLContext
    rules: PrincipalRules


class ListenerCertificates:
    """Implements network.tls_handshakes.ListenerTls."""

    def __init__(self, configs: ConfigView) -> None:
        self._configs = configs
        self._protocols: dict[str, str] = {}
        self._loaded: dict[str, _Loaded] = {}
        self._reloading: asyncio.Task[None] | None = None
        self._is_stale = False
        self._checks: asyncio.Task[None] | None = None

    async def load(self, endpoints: Iterable[Endpoint]) -> None:
        """Loads the certificates of these TLS listeners, and keeps them up to date.  Raises ConfigError."""
        for endpoint in endpoints:
            self._protocols[endpoint.listener] = endpoint.security_protocol
            settings = self._settings(endpoint.listener, self._configs.properties)
            self._loaded[endpoint.listener] = await asyncio.to_thread(_load, settings)
        if self._loaded:
            self._configs.subscribe(self._config_changed)
            self._checks = asyncio.create_task(run_every(_FILES_CHECK_MS, self.check_files), name="certificate-files")

    def context(self, listener: str) -> ssl.SSLContext:
        """The current context of a listener."""
        return self._loaded[listener].context

    def principal(self, listener: str, certificate: bytes | None) -> str:
        """The principal of a client.  Raises KctlError for one without a rule, ValueError for a malformed name."""
        if certificate is None:
            return ANONYMOUS
        from kctl.security.certificates import subject_name  # noqa: PLC0415 - only TLS needs `cryptography`

        return "User:" + self._loaded[listener].rules.user_name(subject_name(certificate))

    async def check(self, overrides: Mapping[str, str]) -> None:
        """Raises ApiError(INVALID_REQUEST) if a listener could not use the broker's new dynamic properties."""
        properties = {**self._configs.static, **self._configs.dynamic_default, **overrides}
        for listener, loaded in self._loaded.items():
            try:
                settings = self._settings(listener, properties)
                if settings != loaded.settings:
                    await asyncio.to_thread(_load, settings)
            except ConfigError as error:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Listener {listener}: {error}") from None

    def check_files(self) -> None:
        """Reloads listeners whose files have changed."""
        if any(loaded.files != states_of(loaded.settings.files) for loaded in self._loaded.values()):
            self._reload()

    async def close(self) -> None:
        """Ends the checks."""
        for task in (self._checks, self._reloading):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def _settings(self, listener: str, properties: Mapping[str, str]) -> TlsSettings:
        own = listener_properties(properties, listener)
        if self._protocols[listener] == "SASL_SSL":
            # KIP-684: with SASL, clients need a certificate only if the property is set for the listener itself.
            own["ssl.client.auth"] = properties.get(f"listener.name.{listener.lower()}.ssl.client.auth", "none")
        return TlsSettings.of(own)

    def _config_changed(self) -> None:
        try:
            properties = self._configs.properties
            is_changed = any(each.settings != self._settings(name, properties) for name, each in self._loaded.items())
        except ConfigError:
            is_changed = True  # Reloading logs the error.
        if is_changed:
            self._reload()

    def _reload(self) -> None:
        self._is_stale = True
        if self._reloading is None:
            self._reloading = asyncio.get_running_loop().create_task(self._reload_all(), name="certificates")

    async def _reload_all(self) -> None:
        try:
            while self._is_stale:
                self._is_stale = False
                for listener, loaded in list(self._loaded.items()):
                    await self._reload_one(listener, loaded)
        finally:
            self._reloading = None

    async def _reload_one(self, listener: str, loaded: _Loaded) -> None:
        files: FileStates = loaded.files
        try:
            settings = self._settings(listener, self._configs.properties)
            files = states_of(settings.files)
            if settings == loaded.settings and files == loaded.files:
                return
            self._loaded[listener] = await asyncio.to_thread(_load, settings)
            log.info("loaded certificates listener=%s", listener)
        except ConfigError as error:
            log.error("cannot load certificates, the old ones stay in use listener=%s error=%s", listener, error)
            # The same files are not loaded again.
            self._loaded[listener] = _Loaded(loaded.settings, files, loaded.context, loaded.rules)


def _load(settings: TlsSettings) -> _Loaded:
    # The state is read first, so that the next check detects a change during the load.
    states = states_of(settings.files)
    return _Loaded(settings, states, server_context(settings), PrincipalRules(settings.principal_mapping_rules))
