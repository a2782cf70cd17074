"""Code that runs on Spark's executors; those of a cluster get it in a zip with kctl.protocol, records and client.

Reading order: worker (the entry point of a task), task (a planned file, from the first fetch to publication), reading
(the batches of an offset range, as chunks with the positions of all fields), decoding (chunks into Arrow columns; keys
and values into the types of schema), selection (which of them an export has), targets (every operation on the folder of
the export), outcome and progress (results for the driver).
"""

from pathlib import Path
from zipimport import zipimporter

from kctl.tables.exec.native import use_compiled_modules

_LOADER: object = __spec__.loader if __spec__ else None

if isinstance(_LOADER, zipimporter):
    use_compiled_modules(Path(_LOADER.archive))
