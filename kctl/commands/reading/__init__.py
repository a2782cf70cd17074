"""What the commands that read records share."""
