"""Kafka record batches as Arrow columns, in both directions. Needs pyarrow and numpy, and nothing of Spark."""
