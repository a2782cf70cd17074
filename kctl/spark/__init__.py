"""Moves topics into files with PySpark: planned first, written by parallel tasks, committed once.

Reading order: layout (names inside the folder), plan (which offsets go into which file), commit_log (plans and
commits, recovery), exec (what runs on Spark's executors), session and package (how Spark starts), job (one planned
batch as a Spark job), export (a whole run).  docs/spark.md explains the guarantees.
"""
