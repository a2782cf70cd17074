"""Kerberos tickets for GSSAPI, through the optional package gssapi."""

from __future__ import annotations

from typing import Any

from kctl.client.sasl_settings import SaslSettings
from kctl.errors import AuthenticationFailed, KctlError
from kctl.security.sasl_client import GssapiClient, SaslClient


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
    """The client's side of GSSAPI with the broker at `host`.

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
    """Where credentials come from, for gssapi; None for the user's ticket cache.

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
