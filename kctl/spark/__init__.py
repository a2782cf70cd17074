"""Moves topics into files with PySpark: planned first, written by parallel tasks, committed once.

Reading order: layout (names inside the folder), plan (which offsets go into which file) and cluster_view (what it asks
the cluster), commit_log (plans and commits, recovery), exec (what runs on Spark's executors), session, package and
class_archive (how Spark starts), job (the tasks of a plan), export (a whole run), summary.  docs/spark.md is for users.
"""
