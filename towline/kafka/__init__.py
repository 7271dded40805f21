"""Kafka's log directory: its formats, and partitions that are read and written without a broker (docs/kafka-format.md).

Needs the extra `kafka`. A partition is read by `towline.kafka.log.partition`, written by `towline.kafka.log.writer`,
checked and recovered by `towline.kafka.log.recovery`.
"""
