"""Spark Declarative Pipelines: projects wired to topics, and running them.

The language (``spark-pipeline.yml``, SQL and Python files) is Spark's own. What is here begins such a project, runs one
with the right Java, and tells what Spark tells of it in the words of the project's files.
"""
