"""Writes topics by `format("kctl")` from one Spark session: a batch query, and a streaming query of which the last
batch is run again.

Prints a line for each step, and with the word `forever` lets the streaming query run until it is killed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from kctl.tables.engines.data_source import register
from kctl.tables.engines.session import JVM_FLAGS
from kctl.tables.engines.submission import use_option

master, bootstrap, source, target, checkpoint, *words = sys.argv[1:]
builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
for name, value in {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": f"{JVM_FLAGS} {use_option()}",
    "spark.sql.shuffle.partitions": "2",
    "spark.executor.memory": "512m",
}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
register(spark)
options = {"kafka.bootstrap.servers": bootstrap}
rows = spark.readStream.format("kctl").options(**options, subscribe=source, maxOffsetsPerTrigger="100").load()
sink = rows.writeStream.format("kctl").options(**options, topic=target, checkpointLocation=checkpoint)


def show(*texts: str) -> None:
    sys.stdout.write(" ".join(texts) + "\n")
    sys.stdout.flush()


def run_stream() -> None:
    query = sink.trigger(availableNow=True).start()
    query.awaitTermination()


if "forever" in words:
    sink.trigger(processingTime="100 milliseconds").start().awaitTermination()
if "batch" in words:
    frame = spark.range(0, 40, 1, 3).selectExpr("cast(id as string) as key", "concat('batch ', id) as value", "id")
    frame.write.format("kctl").options(**options, topic=target).mode("append").save()
    show("batch")
    try:
        frame.selectExpr("id as value").write.format("kctl").options(**options, topic=target).mode("append").save()
    except Exception as error:
        show(next(line for line in str(error).splitlines() if "UsageError: " in line))
run_stream()
if "again" in words:
    # Spark repeats a batch that is not in its log of commits.
    commits = sorted(Path(checkpoint, "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    commits[-1].unlink()
    Path(checkpoint, "commits", f".{commits[-1].name}.crc").unlink(missing_ok=True)
    run_stream()
    show("again", commits[-1].name)
