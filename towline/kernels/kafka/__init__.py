"""Kernels of Kafka's record batches: no process of a node calls them."""
