"""The files of an export in an object store: S3, Google Cloud Storage or Azure, through obstore.

An object appears with all its bytes or not at all, and `mode="create"` (If-None-Match: * for S3 and Azure, generation 0
for Google) makes the store refuse a second object of the same name.  That is all that the protocol of exports needs.
There is no lock: of two exporters one fails when it publishes the plan or commit of the same batch.

Credentials come from where the library finds them (variables such as AWS_ACCESS_KEY_ID, web identity, instance
metadata), for S3 also from the profile in AWS_PROFILE.  They are never part of the URL, of tasks, plans or logs.
"""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import tempfile
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, cast

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore, from_url

from kctl.tables.exec.targets.files import StoreFailed, checked

PROBE = "_kctl/conditional-writes"
"""An object that exists in every target: creating it again must be refused."""
REQUEST_TIMEOUT = "900s"
"""Timeout of one request; a data file is one request."""
CONNECT_TIMEOUT = "10s"
RETRY_TIMEOUT = timedelta(seconds=60)
RETRIES = 5
READ_BYTES = 256 << 10
"""Read-ahead of a file; more than most footers."""
ONE_REQUEST_BYTES_MAX = 5_000_000_000
"""Larger objects need several requests, which S3 accepts up to 5 GiB in one."""


class ObjectFiles:
    """Objects below a URL."""

    def __init__(
        self, url: str, *, store: ObjectStore | None = None, one_request_bytes_max: int = ONE_REQUEST_BYTES_MAX
    ) -> None:
        """`store` is for tests.  Raises StoreFailed for invalid settings in the environment."""
        self._url = url
        self._one_request_bytes_max = one_request_bytes_max
        self._scratch: dict[Path, IO[bytes]] = {}
        with self._failures("use"):
            self._store = store or _open_store(url)

    @property
    def location(self) -> str:
        """The URL."""
        return self._url

    def prepare(self, directories: Collection[str]) -> None:
        """Needs no directories; checks that the store refuses to create an existing object.

        Raises StoreFailed for stores that ignore the condition of the request: exports would lose commits there.
        """
        self.create(PROBE, b"")
        if self.create(PROBE, b""):
            raise StoreFailed(
                f"the store of {self._url} overwrites objects that it must not (it ignores If-None-Match): exports "
                "are not safe there"
            )

    def names(self, directory: str) -> list[str]:
        """Return the sorted names of objects and prefixes below the directory."""
        checked(directory, self._url)
        with self._failures(f"list {directory}"):
            found = obstore.list_with_delimiter(self._store, directory or None)
        paths = [*found["common_prefixes"], *(object_["path"] for object_ in found["objects"])]
        return sorted(path.rstrip("/").rpartition("/")[2] for path in paths)

    def sizes(self, directory: str) -> dict[str, int]:
        """Return the sizes of all objects below the directory, by path."""
        checked(directory, self._url)
        with self._failures(f"list {directory}"):
            pages = obstore.list(self._store, f"{directory}/" if directory else None)
            return {object_["path"]: int(object_["size"]) for page in pages for object_ in page}

    def size(self, path: str) -> int | None:
        """Return the size of the object in bytes; None if it does not exist."""
        checked(path, self._url)
        try:
            with self._failures(f"read {path}"):
                return int(obstore.head(self._store, path)["size"])
        except FileNotFoundError:
            return None

    def modified_ms(self, path: str) -> int | None:
        """Return when the object was written, as the store says."""
        checked(path, self._url)
        try:
            with self._failures(f"read {path}"):
                return round(obstore.head(self._store, path)["last_modified"].timestamp() * 1000)
        except FileNotFoundError:
            return None

    def read(self, path: str) -> bytes:
        """Return all bytes of the object.  Raises FileNotFoundError."""
        checked(path, self._url)
        with self._failures(f"read {path}"):
            return bytes(obstore.get(self._store, path).bytes())

    def open(self, path: str) -> IO[bytes]:
        """Return the object for random access by ranged reads.  Raises FileNotFoundError."""
        checked(path, self._url)
        with self._failures(f"read {path}"):
            reader = obstore.open_reader(self._store, path, buffer_size=READ_BYTES)
        return cast("IO[bytes]", io.BufferedReader(_RawReader(reader, self, path), READ_BYTES))

    def create(self, path: str, data: bytes) -> bool:
        """Create the object; False if it exists."""
        return self._put(path, data)

    def scratch(self, path: str) -> Path:
        """Return a file without a name in the folder for temporary files (TMPDIR); it disappears with the process."""
        checked(path, self._url)
        file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `discard`
        scratch = Path(f"/dev/fd/{file.fileno()}")
        self._scratch[scratch] = file
        return scratch

    def publish(self, scratch: Path, path: str) -> bool:
        """Upload the file in one request, straight from the page cache, and remove it; False if the object exists.

        Stores limit the size of a request.  A larger file is uploaded in parts; this cannot be conditional, and is
        preceded by a check instead.
        """
        try:
            checked(path, self._url)
            size = scratch.stat().st_size
            if size > self._one_request_bytes_max:
                if self.size(path) is not None:
                    return False
                with self._failures(f"write {path}"):
                    obstore.put(self._store, path, scratch, use_multipart=True)
                return True
            if not size:
                return self._put(path, b"")
            with scratch.open("rb") as file:
                # Not closed here: the library may still refer to it.
                return self._put(path, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        finally:
            self.discard(scratch)

    def discard(self, scratch: Path) -> None:
        """Close the local file, which removes it."""
        if file := self._scratch.pop(scratch, None):
            file.close()

    def replace(self, path: str, other: str) -> None:
        """Raise StoreFailed: an exporter that was overtaken could put an older object in place of a newer one."""
        raise StoreFailed(f"{self._url}: objects are not replaced ({path}, {other})")

    def remove(self, path: str) -> None:
        """Delete the object if it exists."""
        checked(path, self._url)
        with contextlib.suppress(FileNotFoundError), self._failures(f"delete {path}"):
            obstore.delete(self._store, path)

    def remove_scratch(self, directories: Collection[str]) -> None:
        """Objects are never incomplete."""

    def lock(self) -> AbstractContextManager[object]:
        """Object stores have no locks."""
        return contextlib.nullcontext()

    def _put(self, path: str, data: bytes | mmap.mmap) -> bool:
        checked(path, self._url)
        try:
            with self._failures(f"write {path}"):
                obstore.put(self._store, path, data, mode="create")
        except AlreadyExistsError:
            return False
        except FileNotFoundError as error:
            raise StoreFailed(f"cannot write {path} in {self._url}: the bucket does not exist") from error
        return True

    @contextlib.contextmanager
    def _failures(self, doing: str) -> Iterator[None]:
        """Raise StoreFailed for errors of the library, except that a name exists or does not exist."""
        try:
            yield
        except AlreadyExistsError:
            raise
        except BaseError as error:
            raise StoreFailed(f"cannot {doing} in {self._url}: {_reason(error)}") from None


class _RawReader(io.RawIOBase):
    """A file object for pyarrow and BufferedReader."""

    def __init__(self, reader: Any, files: ObjectFiles, path: str) -> None:
        self._reader = reader
        self._files = files
        self._path = path

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return int(self._reader.seek(offset, whence))

    def tell(self) -> int:
        return int(self._reader.tell())

    def readinto(self, buffer: Any) -> int:
        with self._files._failures(f"read {self._path}"):  # noqa: SLF001 - one module
            data = self._reader.read(len(buffer))
        buffer[: len(data)] = bytes(data)
        return len(data)


def _open_store(url: str) -> Any:
    options: dict[str, Any] = {"timeout": REQUEST_TIMEOUT, "connect_timeout": CONNECT_TIMEOUT}
    retries: Any = {"max_retries": RETRIES, "retry_timeout": RETRY_TIMEOUT}
    profile = os.environ.get("AWS_PROFILE")
    is_of_profile = url.startswith("s3") and profile and "AWS_ACCESS_KEY_ID" not in os.environ
    settings = _of_profile(profile) if is_of_profile and profile else {}
    endpoint = settings.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL", os.environ.get("AWS_ENDPOINT", ""))
    # The library refuses http:// unless it is allowed; an endpoint that the user has set as http:// is meant so.
    if endpoint.startswith("http://"):
        options["allow_http"] = True
    return from_url(url, client_options=cast("Any", options), retry_config=retries, **settings)


def _of_profile(profile: str) -> dict[str, Any]:
    """Return the credentials, region and endpoint of an AWS profile; the endpoint may be in the environment instead.

    Raises StoreFailed without boto3, which reads profiles.
    """
    try:
        import boto3  # noqa: PLC0415 - needed for profiles only
        from botocore.config import Config  # noqa: PLC0415 - same
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - same
        from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415 - same
    except ImportError as error:
        raise StoreFailed(f"AWS_PROFILE={profile} needs the package boto3: pip install boto3") from error
    try:
        session = boto3.Session(profile_name=profile)
        provider = Boto3CredentialProvider(session)
        endpoint, usual = (
            session.client("s3", config=Config(ignore_configured_endpoint_urls=ignores)).meta.endpoint_url
            for ignores in (False, True)
        )
    except (BotoCoreError, ValueError) as error:
        raise StoreFailed(f"AWS_PROFILE={profile}: {error}") from None
    found = {"region": session.region_name, "endpoint": endpoint if endpoint != usual else None}
    return {"credential_provider": provider, **{name: text for name, text in found.items() if text}}


def _reason(error: BaseError) -> str:
    """Return the first line of the library's message, without its debug output."""
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return first.partition(": <?xml")[0].strip()
