"""The store's bytes as Arrow: record boundaries, columns, what is selected. Needs numpy and pyarrow, no compiler."""
