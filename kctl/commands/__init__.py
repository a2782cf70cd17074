"""The commands of kctl: parse the options, call `kctl.admin`, show the result.

A module per noun, or a package if the noun is large, with typer functions for its verbs.  What all share is in `frame`;
`reading` and `record_format` are for commands that read records; `compat` imitates the output of Kafka's own tools.

Reading order: frame/root (all nouns, and the call of typer), frame/lazy_group (the import of nouns and verbs),
frame/command (the classes of commands), frame/invocation (a running command), then any noun, such as tokens.
"""
