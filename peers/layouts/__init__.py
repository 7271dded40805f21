"""The same messages stored as one CommitLog with ConsumeQueues, and as a log per partition: `towline bench layouts`."""
