"""What runs on Spark's executors; with kctl.protocol and kctl.records it is shipped to them as one zip.

Reading order: task (a planned file, from fetch to publication), connection and cluster (the synchronous client), fetch
(the batches of an offset range), chunk and varints and decode (batches into Arrow columns), writer (columns into a
Parquet file), files (every operation on the target folder).
"""
