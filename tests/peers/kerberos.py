"""A Kerberos realm of its own: MIT's key distribution centre from Debian's packages, on a free port of 127.0.0.1."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.peers import probe
from tests.peers.process import Process

REALM = "KCTL.TEST"
_SBIN = "/usr/sbin"


def why_not() -> str | None:
    """Why there can be no realm on this machine, in words for a skipped test; None when there can."""
    for program in ("krb5kdc", "kadmin.local", "kdb5_util"):
        if _program(program) is None:
            return f"{program} is missing: install krb5-kdc and krb5-admin-server"
    if importlib.util.find_spec("gssapi") is None:
        return "the gssapi package is missing: install libkrb5-dev and pip install gssapi"
    return None


def why_no_sasl_library() -> str | None:
    """Why librdkafka cannot use tickets on this machine; None when it can.  Its SASL library loads mechanisms."""
    if not any(Path("/usr/lib").glob("*/sasl2/libgssapiv2.so")):
        return "the SASL library has no GSSAPI: install libsasl2-modules-gssapi-mit"
    return None if _program("kinit") else "kinit is missing: install krb5-user"


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=_SBIN)


@dataclass(frozen=True)
class Realm:
    """A running realm."""

    folder: Path
    environment: dict[str, str]
    """For every program that uses the realm."""

    @property
    def settings(self) -> Path:
        """The krb5.conf."""
        return self.folder / "krb5.conf"

    def key_table(self, principal: str) -> Path:
        """Creates the principal; returns a key table with its keys."""
        path = self.folder / f"{principal.replace('/', '-')}.keytab"
        self._run("kadmin.local", "-q", f"addprinc -randkey {principal}@{REALM}")
        self._run("kadmin.local", "-q", f"ktadd -k {path} {principal}@{REALM}")
        return path

    def log_in(self, principal: str) -> None:
        """Puts tickets of a new principal into the user's ticket cache, instead of others."""
        import gssapi  # noqa: PLC0415 - optional

        cache = self.environment["KRB5CCNAME"]
        Path(cache.removeprefix("FILE:")).unlink(missing_ok=True)
        name = gssapi.Name(f"{principal}@{REALM}", gssapi.NameType.kerberos_principal)
        store = {"client_keytab": f"FILE:{self.key_table(principal)}", "ccache": cache}
        assert gssapi.Credentials(name=name, usage="initiate", store=store).lifetime > 0
        assert Path(cache.removeprefix("FILE:")).exists()

    def _run(self, program: str, *arguments: str) -> None:
        command = [_program(program) or program, *arguments]
        subprocess.run(
            command, check=True, stdin=subprocess.DEVNULL, capture_output=True, env=self.environment, timeout=60
        )


@contextlib.contextmanager
def kerberos_realm(folder: Path) -> Iterator[Realm]:
    """A realm that serves tickets in the block."""
    folder.mkdir(parents=True, exist_ok=True)
    address = f"127.0.0.1:{probe.free_port()}"
    (folder / "krb5.conf").write_text(
        f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
        f" rdns = false\n dns_canonicalize_hostname = false\n udp_preference_limit = 1\n"
        f"[realms]\n {REALM} = {{\n  kdc = {address}\n }}\n"
    )
    (folder / "kdc.conf").write_text(
        f'[kdcdefaults]\n kdc_listen = ""\n kdc_tcp_listen = {address}\n[realms]\n {REALM} = {{\n'
        f"  database_name = {folder}/principal\n  key_stash_file = {folder}/stash\n  acl_file = {folder}/acl\n }}\n"
        f"[logging]\n kdc = FILE:{folder}/kdc.log\n"
    )
    environment = {
        **os.environ,
        "KRB5_CONFIG": str(folder / "krb5.conf"),
        "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
        "KRB5RCACHEDIR": str(folder),
        "KRB5CCNAME": f"FILE:{folder}/tickets",
    }
    realm = Realm(folder, environment)
    realm._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
    command = [_program("krb5kdc") or "krb5kdc", "-n", "-r", REALM]
    with Process("krb5kdc", command, log=folder / "krb5kdc.output", environment=environment) as server:
        server.wait_until(lambda: probe.accepts(address), timeout_s=60)
        yield realm
