"""Transactions of a master: half messages until they are committed, rolled back, or checked too often (spec 5.4)."""
