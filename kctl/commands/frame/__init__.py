"""What all commands share: their classes, options, values, help and exit statuses."""
