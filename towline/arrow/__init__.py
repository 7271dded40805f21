"""The store's bytes as Arrow: record boundaries, selection, columns. Needs numpy and pyarrow, no compiler."""
