"""The sender process of a master: streams the log to slaves and keeps the in-sync set."""
