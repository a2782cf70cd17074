"""Exports topics to files and tables, with processes of this machine or with PySpark: plan, write, commit.

Reading order: plans/ (which offsets go into which file, and as which columns), commits/ (names in a folder, plans,
commits), exports/export (a run), engines/ (what runs the tasks), exec/ (the tasks), formats/ (Iceberg and Delta).
"""
