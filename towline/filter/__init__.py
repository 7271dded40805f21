"""Which messages a subscription wants: tags, SQL92 expressions, and the bitmaps that spare their evaluation.

No I/O: expressions are compiled once, and batches of properties, tags codes or bitmaps are judged (spec 7.3, 10.2).
"""
