"""Parses sasl.jaas.config as Kafka's JaasConfig does."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.security.jaas import JAAS_CHARACTERS_MAX, JaasError, parse_jaas
from tests.golden.jaas_values import JAAS_VALUES
from tests.rows import for_rows

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_users_of_a_plain_module_are_options() -> None:
    module = parse_jaas(
        f'{PLAIN} required username="admin" password="admin-secret" user_admin="admin-secret" user_alice="a;b=c";'
    )
    assert (module.class_name, module.simple_name) == (PLAIN, "PlainLoginModule")
    assert module.options == {
        "username": "admin",
        "password": "admin-secret",
        "user_admin": "admin-secret",
        "user_alice": "a;b=c",
    }


def test_a_module_of_another_mechanism_is_no_module_for_this_one() -> None:
    module = parse_jaas(f"{PLAIN} required;")
    assert module.problem_for("PLAIN") is None
    assert module.problem_for("SCRAM-SHA-256") == "has PlainLoginModule, but SCRAM-SHA-256 needs ScramLoginModule"
    misplaced = parse_jaas('my.secret required user_alice="x";')
    assert misplaced.problem_for("PLAIN") == "has another login module, but PLAIN needs PlainLoginModule"


@for_rows(
    "text, options",
    [
        ("M required;", {}),
        ("M REQUIRED ;", {}),
        ("  M\n\toptional\n a=b\n;\n", {"a": "b"}),
        ("M required a='single \"quoted\"' ;", {"a": 'single "quoted"'}),
        (r'M required a="q\"u\\o\te\101";', {"a": 'q"u\\o\teA'}),
        ("M required a = true b=org.example.Name-1_$;", {"a": "true", "b": "org.example.Name-1_$"}),
        ("M required // comment\n a=b; /* and\n another */", {"a": "b"}),
        ('M required principal="kafka/host.example@REALM";', {"principal": "kafka/host.example@REALM"}),
        ('M required a="";', {"a": ""}),
        ('M required a="x" a="y";', {"a": "y"}),
    ],
)
def test_options_are_parsed(text: str, options: dict[str, str]) -> None:
    assert parse_jaas(text).options == options


@for_rows("text, options", JAAS_VALUES)
def test_values_are_accepted_and_refused_as_by_kafka(text: str, options: dict[str, str] | None) -> None:
    if options is not None:
        assert parse_jaas(text).options == options
        return
    with pytest.raises(JaasError):
        parse_jaas(text)


@for_rows(
    "text, reason",
    [
        ("", "login module is missing"),
        (";", "login module is missing"),
        ("M", "control flag"),
        ("M a=b;", "control flag"),
        ("M required", "semicolon"),
        ("M required a=b", "semicolon"),
        ("M required a;", "option a has no value"),
        ("M required a=;", "option a has no value"),
        ("M required =b;", "begins with"),
        ('M required a="b;', "quotation mark is not closed"),
        ("M required /* a=b;", "semicolon at the end is missing; a / that is not in quotation marks begins a comment"),
        ("M required a=1b;", "option a needs quotes: write a value in quotation marks"),
        ("M required a=b@c;", "after option a: write a value in quotation marks"),
        ("M required a=b/c;", "a / that is not in quotation marks"),
        ("M required; N required;", "more than one"),
        ("M required a=" + "b" * JAAS_CHARACTERS_MAX + ";", "limit"),
    ],
)
def test_malformed_values_are_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(JaasError, match=reason):
        parse_jaas(text)


@pytest.mark.parametrize("text", ['M required password="hunter2', 'M required password="a" hunter2!"b";'])
def test_errors_and_repr_contain_no_values(text: str) -> None:
    with pytest.raises(JaasError) as raised:
        parse_jaas(text)
    assert "hunter2" not in str(raised.value)
    assert "hunter2" not in repr(parse_jaas('M required password="hunter2";'))


@given(st.dictionaries(st.from_regex("[a-z_]{1,8}", fullmatch=True), st.text(st.characters(exclude_characters="\r\n"))))
@pytest.mark.long
def test_quoted_values_are_read_as_written(options: dict[str, str]) -> None:
    written = " ".join(f'{name}="{_quoted(value)}"' for name, value in options.items())
    assert parse_jaas(f"M required {written};").options == options


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for config in (text, f"M required {text};"):
        with contextlib.suppress(JaasError):
            parse_jaas(config)
