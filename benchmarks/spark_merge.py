"""Merges batches of changes into a table with Spark: JARS KIND CHANGES WAREHOUSE.

CHANGES has a folder of Parquet files for each batch.  Prints the seconds of each batch, the number of rows and the sum
of a column, as JSON.  Runs with a Python that has PySpark only.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

EXTENSIONS = {
    "iceberg": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "delta": "io.delta.sql.DeltaSparkSessionExtension",
}
MERGE = """
merge into {table} as t using (
    select id, max_by(struct(name, n, deleted), change) as last from changes group by id
) as s on t.id = s.id
when matched and s.last.deleted then delete
when matched then update set name = s.last.name, n = s.last.n
when not matched and not s.last.deleted then insert (id, name, n) values (s.id, s.last.name, s.last.n)
"""


def main() -> None:
    jars, kind, changes, warehouse = sys.argv[1:]
    settings: dict[str, bool | float | int | str | None] = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.extensions": EXTENSIONS[kind],
    }
    if kind == "iceberg":
        catalog = "spark.sql.catalog.lake"
        settings |= {catalog: "org.apache.iceberg.spark.SparkCatalog", f"{catalog}.type": "hadoop"}
        settings[f"{catalog}.warehouse"] = warehouse
        table, using = "lake.db.customers", "iceberg"
    else:
        settings["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        table, using = f"delta.`{warehouse}/customers`", "delta"
    spark = SparkSession.builder.master("local[*]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.sql(f"create table {table} (id bigint, name string, n bigint) using {using}")
    seconds = []
    for batch in sorted(Path(changes).iterdir()):
        started = time.monotonic()
        spark.read.parquet(str(batch)).createOrReplaceTempView("changes")
        spark.sql(MERGE.format(table=table))
        seconds.append(round(time.monotonic() - started, 2))
    ((rows, total),) = spark.sql(f"select count(*), sum(n) from {table}").collect()
    sys.stdout.write(json.dumps({"seconds": seconds, "rows": rows, "total": total}) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
