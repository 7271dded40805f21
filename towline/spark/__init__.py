"""Spark data source `towline`: batch reader, streaming reader, sink."""
