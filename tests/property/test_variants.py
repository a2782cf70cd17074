"""Variants: JSON of any kind is encoded exactly, as other projects read it, and any bytes are read or refused."""

from __future__ import annotations

import contextlib
import json
import math
import random
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kctl.tables.exec.decoding import variant_encoding
from kctl.tables.exec.decoding.variant_encoding import (
    EXPORT_VARIANT_DEPTH_MAX,
    REMEMBERED_MAX,
    REMEMBERED_NAMES_MAX,
    NotVariant,
    Variant,
    VariantEncoder,
    json_text,
)
from tests.rows import for_rows

TEXT = st.sampled_from(["", "a", "b", "id", "größe", "\x00", "\ue000", "\U0001f600", "a" * 63, "é" * 32]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=3
)
INTEGERS = st.one_of(
    st.integers(-300, 300),
    st.integers(-(10**40), 10**40),
    st.sampled_from([1 << power for power in (7, 8, 15, 16, 31, 32, 63, 64)]),
    st.sampled_from([-(1 << power) - 1 for power in (7, 15, 31, 63)]),
)
FRACTIONS = st.builds(
    lambda unscaled, scale: format(Decimal(unscaled).scaleb(-scale), "f") if scale else f"{unscaled}.0",
    st.integers(-(10**27), 10**27),
    st.integers(0, 40),
)
EXPONENTS = st.builds("{}e{}".format, st.integers(-(10**40), 10**40), st.integers(-60, 60))


def keeps(text: str) -> bool:
    """Whether a decimal of 38 digits or a double has the number; 17 digits are enough for a double."""
    return is_decimal(text) or (is_finite(text) and len(Decimal(text).normalize(WIDE).as_tuple().digits) <= 17)


def is_decimal(text: str) -> bool:
    scaled = (Fraction(text) * 10**scale for scale in range(39))
    return any(number.denominator == 1 and abs(number) < 10**38 for number in scaled)


def is_finite(text: str) -> bool:
    return math.isfinite(float(text)) and (float(text) != 0) == (Decimal(text) != 0)


WIDE = Context(prec=1_000)
NUMBERS = st.one_of(
    INTEGERS.map(str),
    FRACTIONS,
    EXPONENTS,
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(allow_nan=False, allow_infinity=False).map("{:.16e}".format),
    st.sampled_from(["1E2", "-0", "-0.00", "-0e3", "2.2250738585072011e-308", "1.10000000000000000001"]),
).filter(keeps)


class Number(str):
    """A number as it is written in a JSON text."""

    __slots__ = ()


def values_with(numbers: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | TEXT | numbers.map(Number),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=6),
        max_leaves=8,
    )


def is_exact_in_spark(text: str) -> bool:
    """Spark reads -0 as 0, and rounds numbers with an exponent to doubles."""
    number = Decimal(text)
    return ("e" not in text.lower() or Decimal(repr(float(text))) == number) and (bool(number) or text[0] != "-")


VALUES = values_with(NUMBERS)
SPARK_VALUES = values_with(NUMBERS.filter(is_exact_in_spark))


def written(value: Any, choose: random.Random) -> str:
    """A JSON text of the value, with any white space, escapes and order of members."""
    space = choose.choice(["", " ", "\n\t"])
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, list):
        return f"[{space}" + f"{space},".join(written(element, choose) for element in value) + f"{space}]"
    if isinstance(value, dict):
        members = list(value.items())
        choose.shuffle(members)
        texts = [f"{written(name, choose)}{space}:{written(member, choose)}" for name, member in members]
        return "{" + space + ",".join(texts) + "}"
    return json.dumps(value, ensure_ascii=choose.random() < 0.5)


def exact(text: str) -> Any:
    """The value with numbers as the texts of decimals, or of the doubles that their digits determine."""
    return json.loads(text, parse_int=_expected, parse_float=_expected)


def _expected(text: str) -> str:
    number = Decimal(text)
    if not number:
        return "-0" if text[0] == "-" else "0"
    return str((number if is_decimal(text) else Decimal(repr(float(text)))).normalize(WIDE))


@given(VALUES, st.randoms(use_true_random=False))
def test_json_is_the_same_after_encoding_and_reading_with_its_members_in_order(
    value: Any, choose: random.Random
) -> None:
    text = written(value, choose)
    found = json_text(*VariantEncoder().encode(text))
    assert exact(found) == exact(text)
    json.loads(found, object_pairs_hook=assert_in_order)


def assert_in_order(members: list[tuple[str, Any]]) -> None:
    """In the order of bytes: readers find members by binary search."""
    names = [name.encode() for name, _ in members]
    assert names == sorted(set(names))


@given(VALUES, st.randoms(use_true_random=False), st.lists(VALUES, max_size=3))
def test_equal_values_have_equal_bytes_whatever_was_encoded_before(
    value: Any, choose: random.Random, before: list[Any]
) -> None:
    used = VariantEncoder()
    for original in before:
        used.encode(written(original, choose))
    assert used.encode(written(value, choose)) == VariantEncoder().encode(written(value, choose))


@given(SPARK_VALUES, st.randoms(use_true_random=False))
@example({"\ue000": Number("1"), "\U0001f600": Number("2")}, random.Random(1))
def test_pyspark_reads_the_same_value_with_the_same_types_as_from_its_own_encoder(
    value: Any, choose: random.Random
) -> None:
    utils = pytest.importorskip("pyspark.sql.variant_utils").VariantUtils
    text = written(value, choose)
    metadata, found = VariantEncoder().encode(text)
    theirs = utils.parse_json(text)
    assert _typed(utils.to_python(found, metadata)) == _typed(utils.to_python(*theirs))


def _typed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _typed(member) for name, member in value.items()}
    return [_typed(element) for element in value] if isinstance(value, list) else (type(value), repr(value))


BYTES = st.binary(max_size=40)


@given(BYTES, BYTES)
@example(b"\x11\x00\x00", b"\x03\x02\x00\x00\x00")
@example(b"\x11\x00\x00", b"")
def test_any_bytes_are_read_or_refused(metadata: bytes, value: bytes) -> None:
    for names in (metadata, b"\x11\x01\x00\x01a"):
        with contextlib.suppress(ValueError):
            json.loads(json_text(names, value))


def test_overlapping_values_are_refused_before_they_are_read() -> None:
    """Each list has the next one twice: 2**40 values."""
    value = b"\x00"
    for _ in range(40):
        value = bytes((0x0B, 2, 0, 0, 0, 0)) + len(value).to_bytes(3, "little")[:2] + value
    with pytest.raises(ValueError, match="not a variant"):
        json_text(b"\x11\x00\x00", value)


@for_rows(
    "text, metadata, value",
    [
        ("null", "110000", "00"),
        ("true", "110000", "04"),
        (" false", "110000", "08"),
        ("-1", "110000", "0cff"),
        ("128", "110000", "108000"),
        ("32768", "110000", "1400800000"),
        ("2147483648", "110000", "180000008000000000"),
        ("1e0", "110000", "1c000000000000f03f"),
        ("-0", "110000", "1c0000000000000080"),
        ("1.00000000000000000001e-2", "110000", "2816" + (10**20 + 1).to_bytes(16, "little").hex()),
        ("-1.50", "110000", "20026affffff"),
        ("12345678.901", "110000", "2403351cdcdf02000000"),
        ("9223372036854775808", "110000", "280000000000000000800000000000000000"),
        ('"é"', "110000", "09c3a9"),
        (json.dumps("a" * 64), "110000", "4040000000" + "61" * 64),
        ("[]", "110000", "030000"),
        ("{}", "110000", "020000"),
        ("[1,[2]]", "110000", "03020002080c0103010002" + "0c02"),
        # The dictionary has the names of the outer object first, and is not sorted then.
        ('{"b":{"a":2},"z":1}', "0103000102" + "03" + "627a61", "02020001" + "000709" + "02010200020c020c01"),
        ('{"b":2,"a":1,"a":3}', "1102000102" + "6162", "020200010002040c030c02"),
    ],
)
def test_encodings_are_those_of_the_specification(text: str, metadata: str, value: str) -> None:
    assert VariantEncoder().encode(text) == Variant(bytes.fromhex(metadata), bytes.fromhex(value))


@pytest.mark.long
@pytest.mark.parametrize("count", [255, 256, 257, REMEMBERED_NAMES_MAX + 1, 66_000])
def test_objects_with_many_members_have_wider_numbers(count: int) -> None:
    value = {f"n{number}": number for number in range(count)}
    metadata, found = VariantEncoder().encode(json.dumps(value))
    assert json.loads(json_text(metadata, found)) == value
    assert list(json.loads(json_text(metadata, found))) == sorted(value)
    offset_size, id_size, is_large = found[0] >> 2 & 3, found[0] >> 4 & 3, found[0] >> 6
    assert (offset_size, id_size, is_large) == (
        1 if count < 10_000 else 2,
        (count > 256) + (count > 65_536),
        count > 255,
    )


@pytest.mark.parametrize("count", [255, 256, 22_000])
def test_long_lists_have_wider_numbers(count: int) -> None:
    value = [[None] for _ in range(count)]
    metadata, found = VariantEncoder().encode(json.dumps(value))
    assert json.loads(json_text(metadata, found)) == value
    assert (found[0] >> 2 & 3, found[0] >> 4) == (1 if count < 10_000 else 2, count > 255)


def test_an_encoder_remembers_a_bounded_number_of_names() -> None:
    """Objects with names that never come again, also in one value."""
    encoder = VariantEncoder()
    for start in range(0, 4 * REMEMBERED_MAX, REMEMBERED_MAX // 2):
        value = [{f"n{start + number}": number} for number in range(REMEMBERED_MAX // 2)]
        assert json.loads(json_text(*encoder.encode(json.dumps(value)))) == value
    seen: set[int] = set()
    pending = [encoder._no_names]
    while pending:
        one = pending.pop()
        if id(one) not in seen:
            seen.add(id(one))
            pending += [shape.after for shape in one.shapes.values()]
    assert 0 < len(seen) <= REMEMBERED_MAX + 1


@for_rows(
    "text, reason",
    [
        ("", "it is not JSON"),
        ("{", "it is not JSON"),
        ("NaN", "it is not JSON"),
        ("[Infinity]", "it is not JSON"),
        ("1 2", "it is not JSON"),
        ("\ufeff{}", "it is not JSON"),
        ("1e999", "a number is beyond the range of doubles"),
        ("1e-999", "a number is beyond the range of doubles"),
        ("1" * 39, "a number has more than 38 digits"),
        ("0." + "1" * 39, "a number has more than 38 digits"),
        ("1.234567890123456789e-30", "a number has more than 38 digits"),
        ("1" * 400, "a number is beyond the range of doubles"),
        ("1" * 5_000, "a number is beyond the range of doubles"),
        ('"\\ud800"', "a text has half of a surrogate pair"),
        ('{"\\udc00":1}', "a text has half of a surrogate pair"),
        ("[" * 100_000, "it has too many levels"),
        ("[" * 129 + "]" * 129, "it has too many levels"),
        ('{"a":' * 129 + "1" + "}" * 129, "it has too many levels"),
        (" " * (16 << 20) + "1", "it is larger than 16777216 bytes"),
    ],
)
def test_texts_that_cannot_be_variants_have_a_reason(text: str, reason: str) -> None:
    with pytest.raises(NotVariant) as refused:
        VariantEncoder().encode(text)
    assert str(refused.value) == reason


@pytest.mark.parametrize("value", [[1] * 401, {"a" * 1_001: 1}], ids=["value", "metadata"])
def test_a_text_that_is_larger_when_it_is_encoded_is_refused(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variant_encoding, "EXPORT_VARIANT_BYTES_MAX", 1_007)
    with pytest.raises(NotVariant, match="it is larger than"):
        VariantEncoder().encode(json.dumps(value, separators=(",", ":")))


def test_as_many_levels_as_are_allowed_are_encoded_and_read() -> None:
    text = "[" * EXPORT_VARIANT_DEPTH_MAX + "]" * EXPORT_VARIANT_DEPTH_MAX
    assert json_text(*VariantEncoder().encode(text)) == text
