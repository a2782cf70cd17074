"""Queries of one Spark session, in a process of its own: a folder as Parquet, and topics with `format("kctl")`.

Prints one line of JSON, waits for a line, and prints another one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from kctl.tables.engines.data_source import register
from kctl.tables.engines.session import JVM_FLAGS

folder, bootstrap, topic, orders, schema, scratch = sys.argv[1:]
LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"}
FAST = {"spark.driver.extraJavaOptions": JVM_FLAGS, "spark.sql.shuffle.partitions": "2"}
builder = SparkSession.builder.master("local[2]")
for name, value in {**LOOPBACK, **FAST}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
register(spark)
options = {"bootstrap.servers": bootstrap, "topic": topic, "value": "string", "includeHeaders": "true"}
sink = {"path": f"{scratch}/rows", "checkpointLocation": f"{scratch}/checkpoint"}


def schema_of(frame: DataFrame) -> str:
    return ",".join(f"{field.name} {field.dataType.simpleString()}" for field in frame.schema)


def rows_of(frame: DataFrame) -> list[Any]:
    return [list(row) for row in frame.select("partition", "offset", "value").collect()]


def stream(**trigger: Any) -> None:
    """Writes all rows that are available.

    Spark gives a new Python process ten seconds to connect, which a busy machine may not allow; the query continues.
    """
    source = spark.readStream.format("kctl").options(**options, maxOffsetsPerTrigger="150").load()
    while True:
        query = source.writeStream.format("parquet").options(**sink).trigger(**trigger).start()
        try:
            query.processAllAvailable()
            query.stop()
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise
        else:
            return


read = spark.read.option("recursiveFileLookup", "true").parquet(folder)
batch = spark.read.format("kctl").options(**options, maxOffsetsPerTask="40").load()
typed = {**options, "topic": orders, "value": "json", "value.schema": schema}
values = spark.read.format("kctl").options(**typed).load().orderBy("offset")
any_kind = spark.read.format("kctl").options(**{**options, "topic": orders, "value": "variant"}).load()
variants = spark.read.option("recursiveFileLookup", "true").parquet(f"{scratch}/variants").orderBy("offset")
shown = variants.selectExpr(
    "key is null",
    "schema_of_variant(value)",
    "try_variant_get(value, '$.id', 'bigint')",
    "try_variant_get(value, '$.price.amount', 'double')",
    "try_variant_get(value, '$[0].a', 'string')",
    "to_json(value)",
)
try:
    spark.read.format("kctl").options(**options, topics=topic).load()
    unknown = ""
except Exception as error:
    unknown = next(line for line in str(error).splitlines() if "UsageError: " in line)
stream(availableNow=True)
first = {
    "folder": {"count": read.count(), "schema": schema_of(read)},
    "batch": {"schema": schema_of(batch), "tasks": batch.rdd.getNumPartitions()},
    "rows": rows_of(batch),
    "typed": [list(row) for row in values.select("value.id", "value.price.amount", "value_rest").collect()],
    "variants": {"schema": schema_of(variants), "rows": [list(row) for row in shown.collect()]},
    "any kind": [list(row) for row in any_kind.selectExpr("variant_get(value, '$.price.amount', 'double')").collect()],
    "unknown": unknown.partition("UsageError: ")[2].partition(";")[0],
    "streamed": spark.read.parquet(sink["path"]).count(),
}
sys.stdout.write(json.dumps(first) + "\n")
sys.stdout.flush()
sys.stdin.readline()
stream(processingTime="1 second")
offsets = sorted(Path(sink["checkpointLocation"], "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
second = {
    "rows": rows_of(spark.read.parquet(sink["path"])),
    "offsets": json.loads(offsets[-1].read_text().splitlines()[-1]),
}
sys.stdout.write(json.dumps(second) + "\n")
sys.stdout.flush()
