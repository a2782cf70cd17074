"""Topics in queries of Spark: readers and writers of `format("kctl")`."""
