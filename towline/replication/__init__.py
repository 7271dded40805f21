"""Replication as far as its processes share it: the handshake of sender and receiver, the flow to a slave."""
