"""What commands and servers write: rows in six formats, documents, tables, log lines, the live screen."""
