"""Kafka's log directories into a store, and a store's topics into Kafka's log directories."""
