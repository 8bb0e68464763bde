"""Topics as tables: Delta and Iceberg, each batch exactly once, for readers of every kind."""
