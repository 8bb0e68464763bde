"""Rows into topics exactly once.

Each attempt of a task writes in a transaction of its own and leaves it open (``task``). When Spark has one attempt of
every task, the driver decides: it stores which transactions make up the batch (``decision``), in a transaction of its
own that fences all other drivers of the application, and commits them (``commit``). A driver that dies leaves either
no decision, and the batch is written anew, or a decision, which the next driver carries out.
"""
