"""Reads exports with Spark: KIND JARS; each line of stdin is a JSON list of what to load.

Prints a JSON list of [partition, offset, number of rows] for each line, or an error as a JSON string.  Runs with a
Python that has PySpark only, of a version for which the formats publish jars.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

EXTENSIONS = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {"spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"},
    "parquet": {},
}


def main() -> None:
    kind, jars = sys.argv[1:]
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        **({"spark.jars": jars} if jars else {}),
        **EXTENSIONS[kind],
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for line in sys.stdin:
        answer: object
        try:
            found = spark.read.format(kind).load(json.loads(line) if kind == "parquet" else json.loads(line)[0])
            answer = [list(row) for row in found.groupBy("partition", "offset").count().collect()]
        except Exception as error:
            answer = str(error).splitlines()[0]
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
