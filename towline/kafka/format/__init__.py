"""Bytes of Kafka's files without input or output, one format a module. Integers are big-endian."""
