"""Filters of subscriptions: tags, SQL92 expressions, and the bitmaps that avoid their evaluation.

The package does no I/O: expressions are compiled once and applied to batches of properties, tags codes or bitmaps (spec
7.3, 10.2).
"""
