"""How other projects' Java programs start quickly: archives of loaded classes, and programs compiled once.

Class loading is most of what a short-lived JVM does.  An archive (class-data sharing) has the classes of one folder of
jars parsed and verified.  A JVM ignores an archive of another JVM or of other jars, and starts without it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.peers.cache import cache_folder

UTF_8 = ("-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8")  # whatever the locale; the second since Java 19
JVM_FLAGS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", *UTF_8)
"""Small heaps and no second compiler stage: tests need a quick start, not throughput."""
TIMEOUT_S = 180


def archive_flags(jars: Path) -> tuple[str, ...]:
    """The flags that let a JVM with that folder of jars use the archive of its classes, if there is one."""
    archive = _archive(jars)
    return (f"-XX:SharedArchiveFile={archive}",) if archive.exists() else ()


def has_archive(jars: Path) -> bool:
    return _archive(jars).exists()


def recording_environment(lists: Path) -> Mapping[str, str]:
    """Environment variables with which every JVM writes the names of the classes that it loads into a file there."""
    return os.environ | {"JDK_JAVA_OPTIONS": f"-XX:DumpLoadedClassList={lists}/%p"}


def make_archive(jars: Path, lists: Path) -> None:
    """Archives the classes named by the files in `lists`; raises CalledProcessError when the JVM cannot."""
    names = dict.fromkeys(
        line for file in sorted(lists.iterdir()) for line in file.read_text().splitlines() if not line.startswith("#")
    )
    archive = _archive(jars)
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        (Path(scratch) / "classes").write_text("\n".join(names) + "\n")
        made = Path(scratch) / archive.name
        flags = ("-Xshare:dump", f"-XX:SharedClassListFile={scratch}/classes", f"-XX:SharedArchiveFile={made}")
        _run("java", *JVM_FLAGS, *flags, "-cp", f"{jars}/*")
        made.rename(archive)  # whole or not at all: a JVM would crash on a part
    for other in archive.parent.glob(f"{jars.name}.classes-*"):
        if other != archive:
            other.unlink(missing_ok=True)


def compiled(program: Path, jars: Path) -> Path:
    """The folder with the classes of a program of one source file, compiled if necessary."""
    source = program.read_bytes()
    digest = hashlib.sha256(b"\0".join((source, jars.name.encode(), _java_identity().encode()))).hexdigest()[:16]
    folder = cache_folder() / f"{program.stem}-{digest}"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
            classes = Path(scratch) / "classes"
            javac = ("-m", "jdk.compiler/com.sun.tools.javac.Main", "-nowarn", "-encoding", "UTF-8")
            class_path = ":".join(map(str, sorted(jars.glob("*.jar"))))
            _run("java", *JVM_FLAGS, *javac, "-cp", class_path, "-d", str(classes), str(program))
            # If another process was faster, its folder is used.
            with contextlib.suppress(OSError):
                classes.rename(folder)
    return folder


def _archive(jars: Path) -> Path:
    return jars.with_name(f"{jars.name}.classes-{_java_identity()}")


@functools.cache
def _java_identity() -> str:
    """Changes with every installation of another Java."""
    found = shutil.which("java")
    if found is None:
        return "none"
    java = Path(found).resolve()
    return hashlib.sha256(f"{java} {java.stat().st_mtime_ns}".encode()).hexdigest()[:8]


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S)
