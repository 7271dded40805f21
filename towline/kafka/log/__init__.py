"""The files behind the formats: segments with their indexes, partitions, log directories."""
