"""Moves topics into files with PySpark: planned first, written by parallel tasks, committed once.

Reading order: layout (names inside the folder), plan and density (which offsets go into which file) and cluster_view
(what they ask the cluster), commit_log (plans and commits, recovery), inventory (files against commits) and adoption
(a lost log rebuilt), exec (what runs on Spark's executors), session, package and class_archive (how Spark starts),
job (the tasks of a plan), export (a whole run), summary and pace (what is told).  docs/spark.md is for users.
"""
