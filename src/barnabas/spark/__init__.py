"""Topics as DataFrames and as tables, from PySpark alone.

``spark.read.format("barnabas")`` needs nothing from here: Spark finds ``pyspark_barnabas`` by itself. ``session``
builds a session with the right Java, Python and settings.
"""

from __future__ import annotations

from barnabas.spark.session import session

__all__ = ["session"]
