"""Measures Barnabas beside Apache Kafka: ``python -m bench --help``."""
