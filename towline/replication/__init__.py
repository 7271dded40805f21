"""The replication handshake, as far as sender and receiver share it."""
