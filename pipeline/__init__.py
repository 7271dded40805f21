"""Jobs that run on Spark: rebuild, verify, archive, replay, statistics and others."""
