"""`kctl produce`: write lines to a topic."""
