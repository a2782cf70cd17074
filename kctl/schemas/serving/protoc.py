"""Compiles Protobuf source text with protoc, which Google's package grpcio-tools brings, in a process of its own."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from kctl.limits import Subject, bound
from kctl.schemas.formats.parsed import InvalidSchema
from kctl.system.operating_system import module_command

PROTOC_S_MAX = bound(
    Subject.SCHEMA_REGISTRY,
    "time to compile a Protobuf schema",
    20,
    "s",
    on_excess="error 42201",
)
_NAME = "registered_schema_.proto"
_PROBLEM = re.compile(r"\S+\.proto:(?!.*warning)")
_IMPORT_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}(?:/[A-Za-z0-9_.-]{1,100}){0,20}")


def compile_protobuf(text: str, used: Mapping[str, str]) -> bytes:
    """Return the FileDescriptorSet of a text and of `used`, the files that it imports.  Raises InvalidSchema."""
    with tempfile.TemporaryDirectory(prefix="kctl-protoc-") as name:
        folder, output = Path(name) / "in", Path(name) / "out"
        for path in used:
            _check_name(path)
        for path, content in (*used.items(), (_NAME, text)):
            file = folder / path
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(content, encoding="utf-8")
            except OSError as error:  # One reference is `a`, and another one `a/b`.
                raise InvalidSchema(f"the reference {path} cannot be used: {error.strerror}") from None
        words = ["--include_imports", f"--descriptor_set_out={output}", f"--proto_path={folder}", _NAME]
        try:
            ran = subprocess.run(
                [*module_command("grpc_tools.protoc"), *words],
                check=False,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PROTOC_S_MAX,
            )
        except subprocess.TimeoutExpired:
            raise InvalidSchema(f"protoc does not compile it in {PROTOC_S_MAX} s") from None
        if ran.returncode != 0:
            lines = ran.stderr.decode(errors="replace").replace(f"{folder}/", "").splitlines()
            reasons = [line.removeprefix(f"{_NAME}:") for line in lines if _PROBLEM.match(line)]
            raise InvalidSchema("; ".join(reasons)[:500] or "protoc does not compile it")
        return output.read_bytes()


def _check_name(path: str) -> None:
    """Raise InvalidSchema unless it is the name of a file below the folder."""
    if path == _NAME or not _IMPORT_NAME.fullmatch(path) or ".." in PurePosixPath(path).parts:
        raise InvalidSchema(f"the reference {path[:100]!r} is not the name of a file to import")
