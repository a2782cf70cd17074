"""Exports topics to files with PySpark: plan, write with parallel tasks, commit.

Reading order: layout (names inside the folder), plan and density (which offsets go into which file) and cluster_view
(the cluster as input of planning), commit_log (plans and commits, recovery), inventory (files against commits) and
adoption (rebuilding lost commits), decodings with value_sample and json_schema_columns (how keys and values are
decoded), exec (code on Spark's executors), session, package and class_archive (starting
Spark), job (the tasks of a plan), export (a whole run), summary and pace (output).  docs/spark.md is for users.
"""
