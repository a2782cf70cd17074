"""What runs on Spark's executors; with kctl.protocol, kctl.records and kctl.client it is shipped to them as one zip.

Reading order: worker and environment (where a Spark task begins), task (a planned file, from the first fetch to
publication), fetch (the batches of an offset range), chunk, varints and decode (batches into Arrow columns), columns
and writer (columns into a Parquet file), files (every operation on the target folder), outcome and progress (what
goes back to the driver).
"""
