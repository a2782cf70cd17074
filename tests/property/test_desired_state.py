"""Documents of `kctl plan`: they are read as they were written, and applying all differences leaves none."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kctl.admin.security.quotas import Entity
from kctl.admin.state.applying import steps
from kctl.admin.state.diff import (
    PARTITIONS,
    REPLICATION_FACTOR,
    Action,
    Change,
    PresentState,
    PresentTopic,
    differences,
)
from kctl.admin.state.document import DesiredState, DesiredTopic, DesiredUser, Scope, UserKey, format_state, parse_state
from kctl.errors import UsageError
from kctl.output.documents import yaml_text
from kctl.output.terminal_text import escape_lines
from kctl.output.yaml_text import YAML_BYTES_MAX, YAML_DEPTH_MAX, Yaml, plain, read_yaml, write_yaml
from kctl.security.acls import AclBinding, AclEntry, Operation, PatternType, Permission, ResourcePattern, ResourceType
from kctl.security.scram import Mechanism
from tests.rows import for_rows

TEXT = st.text(max_size=12)
NAMES = st.sampled_from(["orders", "team-a", "team-b", "__internal"]) | st.text(min_size=1, max_size=6)
KEYS = st.sampled_from(["retention.ms", "cleanup.policy", "min.insync.replicas"]) | st.text(min_size=1, max_size=6)
VALUES = st.sampled_from(["1", "-1", "0777", "1e3", "true", "yes", "null", "~", "1:30", "2026-11-22", ""]) | TEXT
CONFIGS = st.dictionaries(KEYS, VALUES, max_size=3)
COUNTS = st.integers(1, 5)
ENTITIES: st.SearchStrategy[Entity] = st.one_of(
    st.tuples(st.tuples(st.just("user"), st.none() | st.sampled_from(["alice", "team-a"]))),
    st.tuples(st.tuples(st.just("user"), st.just("alice")), st.tuples(st.just("client-id"), st.none() | TEXT)),
).filter(lambda entity: all(name != "<default>" for _, name in entity))
QUOTAS = st.dictionaries(
    ENTITIES,
    st.dictionaries(
        st.sampled_from(["producer_byte_rate", "request_percentage"]),
        st.floats(min_value=1e-3, max_value=1e18) | st.integers(1, 10**15).map(float),
        max_size=2,
    ),
    max_size=3,
)
USER_KEYS = st.builds(
    UserKey, st.sampled_from(["alice", "team-a"]) | st.text(min_size=1, max_size=4), st.sampled_from(Mechanism)
)
ACLS = st.lists(
    st.builds(
        lambda name, principal: AclBinding(
            ResourcePattern(ResourceType.TOPIC, name, PatternType.LITERAL),
            AclEntry(f"User:{principal}", "*", Operation.READ, Permission.ALLOW),
        ),
        st.sampled_from(["orders", "team-a"]),
        st.sampled_from(["alice", "team-a", "*"]),
    ),
    max_size=4,
    unique=True,
)
PATTERNS = st.lists(st.sampled_from(["*", "team-*", "orders", "User:team-*", "user=team-*", "__*"]), max_size=2).map(
    tuple
)
SCOPES = st.builds(Scope, PATTERNS, PATTERNS, PATTERNS, PATTERNS)
DESIRED = st.builds(
    DesiredState,
    topics=st.dictionaries(
        NAMES,
        st.builds(DesiredTopic, st.none() | COUNTS, st.none() | COUNTS, st.none() | CONFIGS),
        max_size=3,
    ),
    acls=st.none() | ACLS,
    quotas=st.none() | QUOTAS,
    users=st.none()
    | st.dictionaries(
        USER_KEYS,
        st.builds(DesiredUser, st.integers(4096, 8192), st.sampled_from(["${env:X}", "${file:/a:b}"])),
        max_size=2,
    ),
    managed=SCOPES,
)
PRESENT = st.builds(
    PresentState,
    topics=st.dictionaries(
        NAMES,
        st.builds(
            PresentTopic,
            st.integers(1, 3),
            st.frozensets(COUNTS, min_size=1, max_size=2),
            CONFIGS,
            st.booleans(),
        ),
        max_size=3,
    ),
    acls=ACLS,
    quotas=QUOTAS,
    users=st.dictionaries(USER_KEYS, st.integers(4096, 8192), max_size=2),
)


@given(DESIRED)
def test_document_is_read_as_it_was_written(desired: DesiredState) -> None:
    document = format_state(desired)
    again = parse_state(read_yaml(write_yaml(document).encode(), "x"), "x")
    assert parse_state(read_yaml(yaml_text(document).encode(), "x"), "x") == again  # plan --export --format yaml
    assert again == replace(desired, acls=None if desired.acls is None else sorted(desired.acls))


PRINTABLE = st.characters(exclude_categories=["Cs"]).filter(lambda character: escape_lines(character) == character)
"""Others are escaped within quotation marks: PyYAML takes bidirectional marks for printable."""
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(PRINTABLE)
TREES: st.SearchStrategy[Yaml] = st.recursive(
    st.none() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(TREES)
def test_yaml_is_read_as_it_was_written(tree: Yaml) -> None:
    assert read_yaml(write_yaml(tree).encode(), "x") == tree


@given(st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(PRINTABLE), inner), max_leaves=10))
def test_yaml_is_written_as_pyyaml_writes_it(tree: object) -> None:
    assert write_yaml(tree) == yaml.dump(tree, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=120)


@given(VALUES)
def test_plain_value_is_read_as_the_same_text(text: str) -> None:
    assert read_yaml(write_yaml({"a": plain(text)}).encode(), "x") == {"a": text}


@given(st.binary(max_size=60) | st.text(alphabet=":-[]{}&*!|>'\"#\n ab,?%@`", max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(UsageError):
        write_yaml(read_yaml(data, "x"))


@for_rows(
    "text, reason",
    [
        ("a: &x 1\nb: *x", "anchors and aliases are not supported"),
        ("a: &a [1]\nb: [*a, *a]", "anchors and aliases are not supported"),
        ("a: !!python/object/apply:os.system [id]", "tags such as tag:yaml.org,2002:python/object/apply:os.system"),
        ("a: !x 1", "tags such as !x are not supported"),
        ("a: 1\na: 2", "line 2: 'a' is given twice"),
        ("{a: 1, 'a': 2}", "'a' is given twice"),
        ("[a]: 1", "a name is neither a list nor a mapping"),
        ("a: 1\n---\nb: 2", "a second document begins"),
        ("[" * (YAML_DEPTH_MAX + 1), "are inside each other"),
        ("[" * 100_000, "x, line 1"),  # PyYAML 6.0.4 refuses it first, in words of its own.
        ("a: [1", "x, line 2, column 1: "),
        ("a: \x00", "x: "),
    ],
)
def test_yaml_that_is_dangerous_or_ambiguous_is_refused(text: str, reason: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_yaml(text.encode(), "x")
    assert reason in str(raised.value)


def test_large_document_is_refused() -> None:
    with pytest.raises(UsageError, match="more than"):
        read_yaml(b"#" * (YAML_BYTES_MAX + 1), "x")


@given(DESIRED, PRESENT)
def test_applying_all_differences_leaves_none(desired: DesiredState, present: PresentState) -> None:
    changes = [change for change in differences(desired, present) if change.problem is None]
    left = differences(desired, after(present, desired, changes))
    assert [change for change in left if change.problem is None] == []


@given(DESIRED, PRESENT)
def test_without_removals_nothing_disappears(desired: DesiredState, present: PresentState) -> None:
    changes = [
        difference
        for difference in differences(desired, present)
        if difference.problem is None and not difference.is_removal
    ]
    now = after(present, desired, changes)
    assert present.topics.keys() <= now.topics.keys()
    assert set(present.acls) <= set(now.acls)
    assert present.users.keys() <= now.users.keys()
    assert all(present.quotas[entity].keys() <= now.quotas[entity].keys() for entity in present.quotas)
    assert all(topic.configs.keys() <= now.topics[name].configs.keys() for name, topic in present.topics.items())


@given(DESIRED, PRESENT)
def test_partitions_are_never_removed_and_nothing_outside_the_scope(
    desired: DesiredState, present: PresentState
) -> None:
    managed = desired.managed
    for change in differences(desired, present):
        if change.item == PARTITIONS and change.action is Action.ALTER and change.problem is None:
            assert int(change.after or 0) > int(change.before or 0)
        if not change.is_removal:
            continue
        match change.target:
            case str() as name:
                assert managed.has_topic(name)
                if change.action is Action.DELETE:
                    assert name not in desired.topics
                    assert not present.topics[name].is_internal
            case AclBinding() as binding:
                assert managed.has_acl(binding)
            case UserKey() as key:
                assert managed.has_user(key.name)
            case entity:
                assert managed.has_quota(entity)


@given(DESIRED, PRESENT)
def test_removals_come_last_and_deleted_topics_at_the_very_end(desired: DesiredState, present: PresentState) -> None:
    changes = differences(desired, present)
    removals = [change.is_removal for change in changes]
    assert removals == sorted(removals)
    deleted = [change.action is Action.DELETE and isinstance(change.target, str) for change in changes]
    assert deleted == sorted(deleted)
    assert [change for step in steps(changes) for change in step] == changes


@given(PRESENT)
def test_exported_state_has_no_difference(present: PresentState) -> None:
    desired = DesiredState(
        topics={
            name: DesiredTopic(
                topic.partitions,
                min(topic.replication_factors) if len(topic.replication_factors) == 1 else None,
                {key: value for key, value in topic.configs.items() if value is not None},
            )
            for name, topic in present.topics.items()
        },
        acls=present.acls,
        quotas=present.quotas,
        users={key: DesiredUser(count, None) for key, count in present.users.items()},
    )
    again = parse_state(read_yaml(write_yaml(format_state(desired)).encode(), "x"), "x")
    everything = Scope(["*", "__*"], ["*"], ["*"], ["*"])
    assert differences(replace(again, managed=everything), present) == []


def test_star_does_not_cover_names_of_internal_topics() -> None:
    assert Scope(topics=["*"]).has_topic("orders")
    assert not Scope(topics=["*"]).has_topic("__consumer_offsets")
    assert Scope(topics=["__schemas"]).has_topic("__schemas")


def after(present: PresentState, desired: DesiredState, changes: list[Change]) -> PresentState:
    """The state of a cluster that has made these changes."""
    topics, acls = dict(present.topics), set(present.acls)
    quotas = {entity: dict(values) for entity, values in present.quotas.items()}
    users = dict(present.users)
    for change in changes:
        match change:
            case Change(target=str() as name):
                _change_topic(topics, name, change, desired)
            case Change(target=AclBinding() as binding):
                (acls.discard if change.is_removal else acls.add)(binding)
            case Change(target=UserKey() as key):
                if change.is_removal:
                    del users[key]
                else:
                    users[key] = int(change.after or 0)
            case Change(target=entity, item=str() as item):
                values = quotas.setdefault(entity, {})  # type: ignore[arg-type]
                if change.is_removal:
                    del values[item]
                else:
                    values[item] = float(change.after or 0)
    return PresentState(topics, sorted(acls), quotas, users)


def _change_topic(topics: dict[str, PresentTopic], name: str, change: Change, desired: DesiredState) -> None:
    if change.action is Action.DELETE:
        del topics[name]
    elif change.action is Action.CREATE:
        new = desired.topics[name]
        topics[name] = PresentTopic(new.partitions or 1, frozenset({new.replication_factor or 1}), new.configs or {})
    elif change.item == PARTITIONS:
        topics[name] = replace(topics[name], partitions=int(change.after or 0))
    elif change.item == REPLICATION_FACTOR:
        topics[name] = replace(topics[name], replication_factors=frozenset({int(change.after or 0)}))
    else:
        configs = dict(topics[name].configs)
        if change.is_removal:
            del configs[change.item or ""]
        else:
            configs[change.item or ""] = change.after
        topics[name] = replace(topics[name], configs=configs)
