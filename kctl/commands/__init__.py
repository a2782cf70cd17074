"""The commands of kctl: read the options, call `kctl.admin`, show the result.

A package per noun, a module per verb, each a typer application.  Modules that several nouns import stand here; `compat`
imitates the output of Apache Kafka's own tools.  Reading order: root (all nouns, and where typer runs); lazy_group (how
nouns and verbs are imported); command (the class of every command); options (what every command takes); invocation
(what a running command is given); topics for typical commands; values for the grammar of offsets, times and sizes.
"""
