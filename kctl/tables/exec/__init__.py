"""Code that runs on Spark's executors; those of a cluster get it in a zip with kctl.protocol, records and client.

Reading order: worker and environment (the entry point of a task), task (a planned file, from the first fetch to
publication), fetch (the batches of an offset range), chunk, locate, varints and decode (batches into Arrow columns),
columns and writer (columns into a Parquet file), files (every operation on the target folder), outcome and progress
(results for the driver).  Keys and values are decoded by batch_decoder (texts, json_values, avro_values,
protobuf_values, variant_values) into column_types; dead_letters has the records that cannot be decoded.
"""

from pathlib import Path
from zipimport import zipimporter

from kctl.tables.exec.native import use_compiled_modules

_LOADER: object = __spec__.loader if __spec__ else None

if isinstance(_LOADER, zipimporter):
    use_compiled_modules(Path(_LOADER.archive))
