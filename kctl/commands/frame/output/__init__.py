"""What a command shows: the types of its rows, fields that many rows have, their JSON Schema."""
