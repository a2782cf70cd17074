"""The commands of kctl: read the options, call `kctl.admin`, show the result.

A package per noun, a module per verb.  Modules that are imported by several nouns stand here.  `compat` imitates the
output of Apache Kafka's own tools.  Reading order: exit_status; declaration (how a command declares its parameters);
options (what every command takes); invocation (what a running command is given); parsing and typer_app (two readers of
the same declarations); topics for the typical commands; values for the grammar of offsets, times and sizes.
"""
