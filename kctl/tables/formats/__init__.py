"""Publishes exported files as commits of an Iceberg or Delta table.

Reading order: table (the port: a table and its commits), table_log (the log of an export whose positions are in
tables), iceberg and delta (the implementations), delta_log (the positions in a Delta table), kinds (choice of the log
by --table).
"""
