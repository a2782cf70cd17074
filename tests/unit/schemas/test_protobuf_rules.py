"""Compatibility of Protobuf files and their texts: tables of changes, compiled by protoc.

protoc takes 0.1 s for each text, so that all texts of a table are compiled as one file each of a single run.
"""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from kctl.schemas.formats.parsed import InvalidSchema
from kctl.schemas.formats.protobuf_compatibility import compare_protobuf
from kctl.schemas.formats.protobuf_schema import ProtobufModel, descriptor_text, parse_protobuf
from kctl.schemas.formats.protobuf_text import protobuf_text
from kctl.schemas.serving.protoc import compile_protobuf

HEAD = 'syntax = "proto3"; '
A = "message A { string s = 1; int32 i = 2; }"

# (new, old, the changes that are not compatible)
RULES = [
    (A, A, []),
    ("message A { string s = 1; int32 i = 2; bool b = 3; }", A, []),
    ("message A { string s = 1; }", A, []),
    ("message A { string renamed = 1; int32 i = 2; }", A, []),
    ("message A { bytes s = 1; int64 i = 2; }", A, []),
    ("message A { string s = 1; bool i = 2; }", A, []),
    ("message A { string s = 1; sint32 i = 2; }", A, ["FIELD_SCALAR_KIND_CHANGED"]),
    ("message A { string s = 1; fixed32 i = 2; }", A, ["FIELD_SCALAR_KIND_CHANGED"]),
    ("message A { int32 s = 1; int32 i = 2; }", A, ["FIELD_SCALAR_KIND_CHANGED"]),
    ("message A { B s = 1; int32 i = 2; } message B {}", A, ["FIELD_KIND_CHANGED"]),
    ("message A { string s = 1; E i = 2; } enum E { Z = 0; }", A, []),
    ("message A { string s = 1; optional int32 i = 2; }", A, []),
    ("message A { repeated int32 i = 2; }", "message A { optional int32 i = 2; }", ["FIELD_NUMERIC_LABEL_CHANGED"]),
    ("message A { repeated string s = 1; }", "message A { optional string s = 1; }", []),
    (f"{A} message B {{}}", A, []),
    (A, f"{A} message B {{}}", ["MESSAGE_REMOVED"]),
    (f"message B {{}} {A}", f"{A} message B {{}}", []),
    (f"package p; {A}", A, ["PACKAGE_CHANGED"]),
    (
        "message A { message N { int32 i = 1; } }",
        "message A { message N { string i = 1; } }",
        ["FIELD_SCALAR_KIND_CHANGED"],
    ),
    ("message A {}", "message A { message N {} }", ["MESSAGE_REMOVED"]),
    (
        "message A { B b = 1; } message B {} message C {}",
        "message A { C b = 1; } message B {} message C {}",
        ["FIELD_NAMED_TYPE_CHANGED"],
    ),
    ("message A { map<string, int64> m = 1; }", "message A { map<string, int32> m = 1; }", []),
    (
        "message A { map<string, string> m = 1; }",
        "message A { map<string, int32> m = 1; }",
        ["FIELD_SCALAR_KIND_CHANGED"],
    ),
    ("message A { string m = 1; }", "message A { map<string, int32> m = 1; }", ["FIELD_KIND_CHANGED"]),
    ("message A { oneof o { string a = 1; } }", "message A { string a = 1; }", []),
    ("message A { oneof o { string a = 1; string b = 2; } }", "message A { string a = 1; }", []),
    (
        "message A { oneof o { string a = 1; string b = 2; } }",
        "message A { string a = 1; string b = 2; }",
        ["MULTIPLE_FIELDS_MOVED_TO_ONEOF"],
    ),
    (
        "message A { oneof o { string a = 1; string b = 2; } }",
        "message A { string a = 1; oneof o { string b = 2; } }",
        ["FIELD_MOVED_TO_EXISTING_ONEOF"],
    ),
    (
        "message A { oneof o { string a = 1; } }",
        "message A { oneof o { string a = 1; string b = 2; } }",
        ["ONEOF_FIELD_REMOVED"],
    ),
    ("message A {}", "message A { oneof o { string a = 1; string b = 2; } }", []),
    ("message A { string a = 1; }", "message A { oneof o { string a = 1; } }", []),
    ("message A { enum E { X = 0; } }", "message A { enum E { X = 0; Y = 1; } }", []),
    ("message A { A a = 1; }", "message A { A a = 1; }", []),
]

TEXTS = [
    r"""syntax = "proto3";
package p.q;

import public "google/protobuf/any.proto";

option java_package = "a\"b";

message A {
  reserved 20 to 22, 30, 40 to max;
  reserved "q";
  string s = 1;
  repeated int32 i = 2 [packed = false, deprecated = true];
  map<string, A> m = 3;
  optional int32 o = 4;
  google.protobuf.Any any = 5;
  oneof either {
    A left = 6;
    int64 right = 7 [json_name = "R"];
  }

  message N {
    A.N n = 1;
  }
}

enum E {
  option allow_alias = true;
  X = 0;
  Y = 0;
}

service S {
  rpc One (A) returns (stream A);
}
""",
    r"""syntax = "proto2";

message A {
  required int32 i = 1 [default = 5];
  optional string s = 2 [default = "a\nb"];
  optional bytes b = 3 [default = "\001x"];
  repeated E e = 4;
}

enum E {
  X = 1;
}
""",
]


def compiled(folder: Path, texts: Mapping[str, str]) -> dict[str, FileDescriptorProto]:
    for name, text in texts.items():
        (folder / name).write_text(text)
    command = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        f"--proto_path={folder}",
        f"--descriptor_set_out={folder}/out",
    ]
    subprocess.run([*command, *texts], check=True)
    return {file.name: file for file in FileDescriptorSet.FromString((folder / "out").read_bytes()).file}


def test_protobuf_rules(tmp_path: Path) -> None:
    texts: dict[str, str] = {}
    for index, (new, old, _) in enumerate(RULES):
        # Each file needs names of its own in one run of protoc: a package, which is removed below.
        for side, text in (("new", new), ("old", old)):
            texts[f"{side}{index}.proto"] = _in_package(HEAD + text, f"{side}{index}")
    files = compiled(tmp_path, texts)
    wrong = []
    for index, (_, _, expected) in enumerate(RULES):
        new, old = (_without_package(files[f"{side}{index}.proto"], f"{side}{index}") for side in ("new", "old"))
        found = compare_protobuf(ProtobufModel(new, ()), ProtobufModel(old, ()))
        if [difference.kind for difference in found] != expected:
            wrong.append((RULES[index], found))
        assert all("new" in difference.text("new", "old") for difference in found)
    assert wrong == []


def _in_package(text: str, package: str) -> str:
    return text.replace("package p;", f"package {package}.p;") if "package p;" in text else f"{text} package {package};"


def _without_package(file: FileDescriptorProto, package: str) -> FileDescriptorProto:
    text = file.SerializeToString()
    plain = FileDescriptorProto.FromString(text)
    plain.package = plain.package.removeprefix(package).removeprefix(".")
    for message in plain.message_type:
        _strip(message, f".{package}.")
    return plain


def _strip(message: object, prefix: str) -> None:
    for field in message.field:  # type: ignore[attr-defined]
        field.type_name = field.type_name.replace(prefix, ".", 1)
    for nested in message.nested_type:  # type: ignore[attr-defined]
        _strip(nested, prefix)


def test_the_text_of_a_descriptor_has_everything(tmp_path: Path) -> None:
    files = compiled(tmp_path, {f"t{index}.proto": text for index, text in enumerate(TEXTS)})
    for index, text in enumerate(TEXTS):
        assert protobuf_text(files[f"t{index}.proto"]) == text


def test_comments_and_spaces_are_not_stored_and_a_descriptor_is_the_same_schema() -> None:
    written = 'syntax="proto3";\n// a comment\nmessage   A{ string s=1; }'
    parsed = parse_protobuf(written, {}, compile_protobuf)
    assert parsed.text == 'syntax = "proto3";\n\nmessage A {\n  string s = 1;\n}\n'
    assert parse_protobuf(descriptor_text(parsed), {}, compile_protobuf).text == parsed.text
    file = FileDescriptorProto.FromString(base64.b64decode(descriptor_text(parsed)))
    assert [message.name for message in file.message_type] == ["A"]


def test_custom_options_keep_the_text_as_it_was_written() -> None:
    text = (
        'syntax = "proto3"; import "google/protobuf/descriptor.proto"; // kept\n'
        'extend google.protobuf.FieldOptions { string note = 50000; } message A { string s = 1 [(note) = "x"]; }'
    )
    assert parse_protobuf(text, {}, compile_protobuf).text == text


@pytest.mark.parametrize(
    ("text", "used", "reason"),
    [
        (HEAD + "message A { Missing m = 1; }", {}, r'^1:\d+: "Missing" is not defined'),
        ("nonsense", {}, "Expected top-level statement"),
        (HEAD + 'import "other.proto";', {}, "other.proto"),
        (HEAD, {"../../etc/x.proto": HEAD}, "not the name of a file"),
        (HEAD, {"/tmp/x.proto": HEAD}, "not the name of a file"),
    ],
)
def test_invalid_protobuf_schemas_are_refused(text: str, used: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidSchema, match=reason):
        parse_protobuf(text, used, compile_protobuf)
