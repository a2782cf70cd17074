"""Dynamic configurations: alterations, notifications, effects."""
