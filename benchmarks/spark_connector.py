"""Writes all records of a topic to Parquet files with Spark's connector for Kafka: JARS BOOTSTRAP TOPIC FOLDER.

Runs with a Python that has PySpark only.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main() -> None:
    jars, bootstrap, topic, folder = sys.argv[1:]
    settings: dict[str, bool | float | int | str | None] = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    spark = SparkSession.builder.master("local[*]").config(map=settings).getOrCreate()
    source = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    spark.read.format("kafka").options(**source).load().write.option("compression", "zstd").parquet(folder)
    spark.stop()


if __name__ == "__main__":
    main()
