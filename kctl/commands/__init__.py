"""What `kctl NOUN VERB` does: read the options, call admin, show the result.  One noun per file.

Reading order: exit_status; declaration (how a command says what it takes); options (what every command takes);
invocation (what a running command is given); parsing and typer_app (two readers of the same declarations);
topics for the typical command; values for the grammar of offsets, times and sizes.
"""
