"""Help: its text, its pages, man pages, and words of other Kafka tools."""
