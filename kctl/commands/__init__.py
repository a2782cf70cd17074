"""The commands of kctl: parse the options, call `kctl.admin`, show the result.

A package per noun, a module per verb, each a typer application.  Modules that several nouns import are directly in this
package; `compat` imitates the output of Apache Kafka's own tools.

Reading order: root (all nouns, and the call of typer); lazy_group (the import of nouns and verbs); command (the class
of every command); options (common options); invocation (the context of a running command); topics for typical commands;
values for the syntax of offsets, times and sizes.
"""
