"""`kctl top`: `state` decides on keys and samples, `views` and `screen` lay out, `live` owns the terminal."""
