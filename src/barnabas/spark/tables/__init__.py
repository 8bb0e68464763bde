"""Topics as tables: Delta, Iceberg and plain Parquet, each batch exactly once, for readers of every kind."""
