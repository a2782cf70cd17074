"""Apache Iceberg's own REST catalogue on loopback, in a JVM, with OAuth2: only the client of SETTINGS gets a token."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.peers import apache_kafka, java

CLIENT_ID, SECRET = "exporter", "planted-4402"
PROGRAM = Path(__file__).with_name("IcebergRestServer.java")


class RestCatalog(NamedTuple):
    """The address of the catalogue, and the folder of its tables."""

    url: str
    warehouse: Path

    def settings(self, credential: str = f"{CLIENT_ID}:{SECRET}") -> dict[str, str]:
        """The properties of pyiceberg."""
        tokens = f"{self.url}/v1/oauth/tokens"
        return {"type": "rest", "uri": self.url, "credential": credential, "oauth2-server-uri": tokens}

    def environment(self, name: str, credential: str = f"{CLIENT_ID}:{SECRET}") -> dict[str, str]:
        """The variables by which pyiceberg finds a catalogue of that name."""
        settings = self.settings(credential)
        return {
            f"PYICEBERG_CATALOG__{name.upper()}__{key.upper().replace('-', '_')}": value
            for key, value in settings.items()
        }


@contextmanager
def iceberg_rest(folder: Path) -> Iterator[RestCatalog]:
    """Runs the catalogue, whose tables and database are in the folder."""
    jars = apache_kafka.iceberg_rest_jars()
    class_path = f"{jars}/*:{java.compiled(PROGRAM, jars)}"
    command = ["java", *java.JVM_FLAGS, "-cp", class_path, PROGRAM.stem, str(folder), CLIENT_ID, SECRET]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port, f"the catalogue ended with status {process.wait()}"
        try:
            yield RestCatalog(f"http://127.0.0.1:{port}", folder / "warehouse")
        finally:
            process.kill()
