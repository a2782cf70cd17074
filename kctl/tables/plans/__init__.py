"""What an export reads, and as which columns."""
