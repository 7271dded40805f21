"""Replication: the sender on a master, the receiver on a slave.

owns     sender: REPLICATED and one line per slave; receiver: APPENDED, CONFIRMED and the CommitLog bytes of a slave
reads    sender: APPENDED, FLUSHED; receiver: FLUSHED
asks     the receiver asks the sender: it greets with the end of its log, and grants credit with every acknowledgement
answers  slaves: slices of the log as they stand, and the master's metadata
dies     safely at any point: a slave appends only at its own end, and greets again after every broken link
"""
