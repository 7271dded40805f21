"""The schedule process of a master: delivers delayed and timed messages and completes transactions."""
