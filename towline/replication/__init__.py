"""What both ends of replication need: the handshake of a sender with a receiver."""
