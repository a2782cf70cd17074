"""What mypyc compiles; here is whether it did, found out without an import of the record walk.

`walk` needs the package librt, which Spark's executors may not have.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec


@lru_cache(maxsize=1)
def walk_is_compiled() -> bool:
    """Return whether `kctl.records.compiled.walk` is a compiled module; see docs/decisions/record-walk.md."""
    found = find_spec("kctl.records.compiled.walk")
    return found is not None and not str(found.origin).endswith(".py")
