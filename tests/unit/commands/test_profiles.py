"""Profiles: how they are stored, which one applies, and what they refuse."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.commands.frame.command import ChangingCommand, ClusterCommand, ConfirmedCommand
from kctl.commands.frame.exit_status import ExitStatus, Refused
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.parameters import flags_of
from kctl.commands.frame.profiles.profile import Profile, Profiles, format_profiles, parse_profiles
from kctl.commands.frame.root import all_commands
from kctl.config.properties import Readers, resolve
from kctl.errors import UsageError
from kctl.output.console import Console
from kctl.protocol.apis.create_topics import CreateTopicsRequest
from kctl.protocol.apis.delete_topics import DeleteTopicsRequest
from kctl.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from kctl.security.jaas import parse_jaas
from tests.peers.fork_server import ROOT
from tests.rows import for_rows
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.commands.conftest import Kctl

UNREACHABLE = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "kctl"


@pytest.fixture
def bootstrap(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    """The addresses of the cluster, which only a profile has."""
    monkeypatch.delenv("KCTL_BOOTSTRAP_SERVER")
    return cluster.bootstrap


def test_file_is_private_and_replaced_as_a_whole(kctl: Kctl, folder: Path) -> None:
    assert kctl("profile add dev --bootstrap-server a:1").status == ExitStatus.DONE
    file = folder / "profiles.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    before = file.stat().st_ino
    file.chmod(0o644)
    kctl("profile add prod --bootstrap-server b:2")
    assert (stat.S_IMODE(file.stat().st_mode), file.stat().st_ino != before) == (0o600, True)
    assert sorted(path.name for path in folder.iterdir()) == ["profiles.json", "profiles.lock"]


def test_symbolic_link_to_the_file_stays_one(kctl: Kctl, folder: Path, tmp_path: Path) -> None:
    folder.mkdir(parents=True)
    elsewhere = tmp_path / "dotfiles.json"
    (folder / "profiles.json").symlink_to(elsewhere)
    elsewhere.write_bytes(format_profiles(Profiles()))
    kctl("profile add dev --bootstrap-server a:1")
    assert (folder / "profiles.json").is_symlink()
    assert "dev" in json.loads(elsewhere.read_text())["profiles"]


def test_list_show_rename_and_remove(kctl: Kctl) -> None:
    kctl("profile add dev --bootstrap-server a:1 --default-format json")
    kctl("profile add prod --bootstrap-server b:2 --protected --cluster-id X")
    kctl("profile use dev")
    rows = kctl("profile list").rows
    assert rows == [["dev", "true", "a:1", "-", "false", "false"], ["prod", "false", "b:2", "X", "true", "false"]]
    assert kctl("profile rename dev local").rows[0][:2] == ["local", "true"]
    assert kctl("profile show --format json").document["profile"] == "local"
    assert kctl("profile remove local").status == ExitStatus.DONE
    assert kctl("profile show").err.startswith("kctl: there is no current profile")
    assert [row[0] for row in kctl("profile list").rows] == ["prod"]


@for_rows(
    "line, error",
    [
        ("profile add ../x --bootstrap-server a:1", "'../x' cannot be the name of a profile"),
        ("profile add dev", "give --bootstrap-server"),
        ("profile add dev --bootstrap-server a:b", "'a:b' is not an address"),
        ("profile add dev --bootstrap-server a:1 --default-timeout 0s", "--default-timeout must be greater than 0"),
        ("profile add dev --command-config /no/such", "cannot read /no/such"),
        ("profile use nope", "there is no profile 'nope'; profiles are: none"),
        ("profile use", "name a profile, or give --none"),
        ("profile remove nope", "there is no profile 'nope'"),
        ("topics list --profile nope", "there is no profile 'nope'"),
    ],
)
def test_invalid_usage_is_refused(kctl: Kctl, folder: Path, line: str, error: str) -> None:
    ran = kctl(line)
    assert (ran.status, ran.out) == (ExitStatus.USAGE, "")
    assert error in ran.err
    assert not (folder / "profiles.json").exists()


def test_profile_is_replaced_only_with_the_option(kctl: Kctl) -> None:
    kctl("profile add dev --bootstrap-server a:1")
    assert "--replace replaces it" in kctl("profile add dev --bootstrap-server b:2").err
    assert kctl("profile add dev --bootstrap-server b:2 --replace").rows[0][2] == "b:2"
    kctl("profile add other --bootstrap-server c:3")
    assert kctl("profile rename other dev").status == ExitStatus.USAGE


@for_rows(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version": 2}',
        '{"version": 1, "future": 1}',
        '{"version": 1, "current": "nope"}',
        '{"version": 1, "profiles": {"dev": {"only_on_fridays": true}}}',
        '{"version": 1, "profiles": {"dev": {"read_only": "yes"}}}',
        '{"version": 1, "profiles": {"dev": {"properties": {"a": 1}}}}',
        '{"version": 1, "profiles": {"dev": {"format": "xml"}}}',
        '{"version": 1, "profiles": {"../dev": {}}}',
        "[" * 100_000,
    ],
)
def test_file_with_anything_unknown_is_refused(kctl: Kctl, folder: Path, text: str) -> None:
    """An unknown field may be a restriction of a later version."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "profiles.json").write_text(text)
    ran = kctl("topics list")
    assert ran.status == ExitStatus.USAGE
    assert str(folder / "profiles.json") in ran.err


def test_commands_on_files_work_with_a_damaged_file_of_profiles(kctl: Kctl, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "profiles.json").write_text("damaged")
    assert kctl("completion bash").status == ExitStatus.DONE


TEXT = st.text(max_size=20)
PROFILES = st.builds(
    lambda profiles, has_current: Profiles(
        {profile.name: profile for profile in profiles}, profiles[0].name if profiles and has_current else None
    ),
    st.lists(
        st.builds(
            Profile,
            name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", fullmatch=True),
            bootstrap_servers=st.none() | st.text(min_size=1),
            command_config=st.none() | st.text(min_size=1),
            timeout=st.none() | st.text(min_size=1),
            properties=st.dictionaries(TEXT, TEXT, max_size=3),
            cluster_id=st.none() | st.text(min_size=1),
            protected=st.booleans(),
            read_only=st.booleans(),
            format=st.sampled_from([None, "json", "table"]),
        ),
        max_size=4,
    ),
    st.booleans(),
)


@given(PROFILES)
def test_document_is_read_as_it_was_written(profiles: Profiles) -> None:
    assert parse_profiles(format_profiles(profiles), "x") == profiles


# Which settings apply.


def test_named_profile_supplies_addresses_format_and_timeout(kctl: Kctl, cluster: FakeCluster, bootstrap: str) -> None:
    cluster.create("orders")
    kctl(f"profile add dev --bootstrap-server {bootstrap} --default-format json --default-timeout 20s")
    assert kctl("topics list --profile dev").document[0]["topic"] == "orders"
    assert kctl("--profile dev topics list --format plain").rows[0][0] == "orders"


def test_variable_names_a_profile_and_the_option_overrides_it(
    kctl: Kctl, cluster: FakeCluster, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kctl(f"profile add dev --bootstrap-server {bootstrap}")
    kctl(f"profile add other --bootstrap-server {UNREACHABLE}")
    monkeypatch.setenv("KCTL_PROFILE", "dev")
    assert kctl("topics list").status == ExitStatus.DONE
    assert kctl("topics list --profile other").status == ExitStatus.UNREACHABLE
    monkeypatch.setenv("KCTL_PROFILE", "other")
    assert kctl("topics list --profile dev").status == ExitStatus.DONE


def test_options_and_variables_override_settings_of_a_named_profile(
    kctl: Kctl, cluster: FakeCluster, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kctl(f"profile add dev --bootstrap-server {UNREACHABLE}")
    assert kctl(f"topics list --profile dev --bootstrap-server {bootstrap}").status == ExitStatus.DONE
    monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", bootstrap)
    assert kctl("topics list --profile dev").status == ExitStatus.DONE


def test_current_profile_does_not_apply_to_other_addresses(
    kctl: Kctl, cluster: FakeCluster, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its credentials would be sent to another cluster."""
    kctl(f"profile add prod --bootstrap-server {UNREACHABLE} --read-only --property security.protocol=SASL_SSL")
    kctl("profile use prod")
    ran = kctl(f"topics create orders --bootstrap-server {bootstrap}")
    assert ran.status == ExitStatus.DONE
    assert "the current profile 'prod' does not apply" in ran.err
    monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", bootstrap)
    assert kctl("topics list --quiet").err == ""


def test_current_profile_applies_to_one_of_its_own_addresses(kctl: Kctl, cluster: FakeCluster, bootstrap: str) -> None:
    kctl(f"profile add prod --bootstrap-server {bootstrap} --read-only")
    kctl("profile use prod")
    address = bootstrap.split(",", maxsplit=1)[0]
    assert kctl(f"topics create orders --bootstrap-server {address}").status == ExitStatus.REFUSED


def test_file_of_a_profile_is_overridden_by_its_own_properties(kctl: Kctl, bootstrap: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={UNREACHABLE}\nclient.id=file\n")
    kctl(f"profile add dev --command-config {file} --property bootstrap.servers={bootstrap}")
    assert kctl("topics list --profile dev").status == ExitStatus.DONE


def test_given_file_replaces_all_properties_of_the_profile(kctl: Kctl, bootstrap: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=file\n")
    kctl(f"profile add dev --bootstrap-server {bootstrap} --property security.protocol=SSL")
    assert kctl(f"topics list --profile dev --command-config {file}").status == ExitStatus.DONE


# What profiles refuse.


def test_other_cluster_is_refused_before_anything_is_done(kctl: Kctl, cluster: FakeCluster, bootstrap: str) -> None:
    kctl(f"profile add prod --bootstrap-server {bootstrap} --cluster-id another")
    for line in ("topics list", "topics create orders", "topics delete orders --yes"):
        ran = kctl(f"{line} --profile prod --format json")
        assert ran.status == ExitStatus.REFUSED
        assert ran.document["error"]["code"] == "REFUSED"
        assert "the profile expects another" in ran.err
    assert not cluster.requested(CreateTopicsRequest)
    assert not cluster.requested(DeleteTopicsRequest)


def test_pinned_cluster_id_is_that_of_the_cluster(kctl: Kctl, cluster: FakeCluster, bootstrap: str) -> None:
    kctl(f"profile add prod --bootstrap-server {bootstrap} --pin-cluster-id")
    pinned = kctl("profile show prod --format json").document["cluster_id"]
    assert pinned == kctl(f"cluster describe --bootstrap-server {bootstrap} --format json").document["cluster_id"]
    assert kctl("topics list --profile prod").status == ExitStatus.DONE


def test_read_only_profile_refuses_changes_but_not_dry_runs(kctl: Kctl, cluster: FakeCluster, bootstrap: str) -> None:
    cluster.create("orders")
    kctl(f"profile add prod --bootstrap-server {bootstrap} --read-only")
    ran = kctl("topics delete orders --yes --profile prod")
    assert ran.status == ExitStatus.REFUSED
    assert "the profile 'prod' is read-only: 'kctl topics delete' would change the cluster" in ran.err
    assert not cluster.requested(DeleteTopicsRequest)
    assert kctl("topics delete orders --dry-run --profile prod").status == ExitStatus.DONE
    assert kctl("topics create other --dry-run --profile prod").status == ExitStatus.DONE
    assert "other" not in cluster.topics


def test_protected_profile_requires_its_name(kctl: Kctl, cluster: FakeCluster, bootstrap: str) -> None:
    cluster.create("orders")
    kctl(f"profile add prod --bootstrap-server {bootstrap} --protected")
    ran = kctl("topics delete orders --yes --profile prod")
    assert ran.status == ExitStatus.REFUSED
    assert "repeat with --confirm prod" in ran.err
    assert kctl("topics delete orders --yes --profile prod --confirm dev").status == ExitStatus.REFUSED
    assert not cluster.requested(DeleteTopicsRequest)
    assert kctl("topics delete orders --profile prod --confirm prod").status == ExitStatus.DONE
    assert "orders" not in cluster.topics


def test_confirming_another_profile_than_the_one_that_applies_is_refused(kctl: Kctl, cluster: FakeCluster) -> None:
    ran = kctl("topics create orders --confirm prod")
    assert ran.status == ExitStatus.REFUSED
    assert "--confirm prod does not confirm this change: no profile applies; leave it out, or add --profile" in ran.err
    assert not cluster.requested(CreateTopicsRequest)


def test_client_refuses_changes_of_a_command_that_did_not_check(
    kctl: Kctl, cluster: FakeCluster, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("orders")
    kctl(f"profile add prod --bootstrap-server {bootstrap} --read-only")
    kctl(f"profile add other --bootstrap-server {bootstrap} --protected")
    monkeypatch.setattr("kctl.commands.frame.invocation.Invocation.authorize_change", lambda *_: None)
    for profile, reason in (("prod", "is read-only"), ("other", "is protected")):
        ran = kctl(f"topics create new --profile {profile}")
        assert ran.status == ExitStatus.REFUSED
        assert reason in ran.err
        ran = kctl(f"configs alter topic orders --set retention.ms=1 --profile {profile}")
        assert ran.status == ExitStatus.REFUSED
    assert not cluster.requested(CreateTopicsRequest)
    assert not cluster.requested(IncrementalAlterConfigsRequest)


def test_side_of_a_copy_is_checked_by_its_own_profile(kctl: Kctl, cluster: FakeCluster, bootstrap: str) -> None:
    cluster.create("orders")
    cluster.create("copies")
    kctl(f"profile add source --bootstrap-server {bootstrap} --read-only")
    kctl(f"profile add target --bootstrap-server {bootstrap} --protected")
    line = "copy orders copies --from-profile source --to-profile target"
    assert kctl(line).status == ExitStatus.REFUSED
    assert kctl(f"{line} --confirm target").status == ExitStatus.DONE
    assert kctl("copy orders copies --from-profile target --to-profile source").status == ExitStatus.REFUSED


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "is_allowed"), [("prod\n", True), ("y\n", False), ("dev\n", False), ("", False)])
def test_protected_profile_is_confirmed_on_a_terminal(typed: str, is_allowed: bool) -> None:
    errors = Terminal()
    run = Invocation(Console(io.StringIO(), errors, stdin=Terminal(typed)))
    run.profile = Profile("prod", protected=True)
    if is_allowed:
        run.authorize_change("kctl topics alter")
    else:
        with pytest.raises(Refused, match="is not the name of the profile, prod"):
            run.authorize_change("kctl topics alter")
    assert "The profile 'prod' is protected.  Its name confirms 'kctl topics alter':" in errors.getvalue()


def test_commands_with_an_option_of_changes_are_declared_as_changes() -> None:
    """A command that can be tried or confirmed changes something."""
    signs = {"--dry-run", "--yes"}
    reading = {"kctl export", "kctl export --engine spark"}
    for noun, verbs in all_commands().items():
        for verb, command in verbs.items():
            name = f"kctl {noun}" if noun == verb else f"kctl {noun} {verb}"
            flags = {flag for param in command.params for flag in flags_of(param)}
            if isinstance(command, ClusterCommand) and signs & flags and name not in reading:
                assert isinstance(command, ConfirmedCommand), f"{name} is a {ChangingCommand.__name__}"


# Secrets.


def test_secrets_are_refused_on_the_command_line_and_never_shown(kctl: Kctl, folder: Path) -> None:
    ran = kctl("profile add dev --bootstrap-server a:1 --property ssl.keystore.password=geheim")
    assert ran.status == ExitStatus.USAGE
    assert "geheim" not in ran.out + ran.err
    jaas = 'sasl.jaas.config=x.PlainLoginModule required username="geheim" password="${env:PW}";'
    assert kctl("profile add dev --bootstrap-server a:1 --property", jaas).status == ExitStatus.DONE
    (folder / "profiles.json").write_text((folder / "profiles.json").read_text().replace("${env:PW}", "geheim"))
    for format_ in ("plain", "table", "json"):
        shown = kctl(f"profile show dev --format {format_}").out + kctl(f"profile list --format {format_}").out
        assert "geheim" not in shown
    assert "[hidden]" in kctl("profile show dev").out


def test_references_are_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kctl: Kctl, bootstrap: str) -> None:
    (tmp_path / "secrets.properties").write_text("id=from file\n")
    monkeypatch.setenv("CLIENT", "from environment")
    for reference in ("${env:CLIENT}", f"${{file:{tmp_path}/secrets.properties:id}}"):
        kctl(f"profile add dev --replace --bootstrap-server {bootstrap} --property client.id={reference}")
        assert kctl("topics list --profile dev").status == ExitStatus.DONE
    kctl(f"profile add dev --replace --bootstrap-server {bootstrap} --property client.id=${{env:NO_SUCH_VARIABLE}}")
    ran = kctl("topics list --profile dev")
    assert (ran.status, "client.id: ${env:NO_SUCH_VARIABLE} does not exist" in ran.err) == (ExitStatus.USAGE, True)


def _readers(found: dict[str, str]) -> Readers:
    return Readers(found.__getitem__, lambda path, key: found[f"{path}:{key}"], lambda path, name: found[path + name])


def _lookup(found: dict[str, str]) -> Callable[[str, str], str]:
    return lambda name, value: resolve(name, value, _readers(found))


@given(st.text(st.characters(exclude_characters="\n", codec="utf-8")))
def test_secret_in_a_login_module_stays_one_value(secret: str) -> None:
    """Quotation marks and backslashes in a password cannot end the option."""
    text = _lookup({"PW": secret})("sasl.jaas.config", 'X required password="${env:PW}";')
    assert parse_jaas(text).options == {"password": secret}


@pytest.mark.parametrize("reference", ["${env:X}", "${file:/a:b}", "${file:/a}", "${vault:x}", "${directory:x}"])
def test_reference_to_nothing_is_an_error(reference: str) -> None:
    with pytest.raises(UsageError, match=r"client\.id: \$\{"):
        _lookup({})("client.id", reference)


def test_start_without_a_profile_imports_nothing_for_profiles(tmp_path: Path) -> None:
    """The start of commands does not get slower for those who have no profile."""
    code = (
        "import sys; from kctl.cli import main; main(['topics', 'list', '--timeout', '1s', '--bootstrap-server',"
        f" '{UNREACHABLE}']); print([n for n in sys.modules if 'profile_document' in n or n == 'json'])"
    )
    ran = _python(code, {"XDG_CONFIG_HOME": str(tmp_path)})
    assert ran.strip().endswith("[]")


def _python(code: str, environment: dict[str, Any]) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return ran.stdout
