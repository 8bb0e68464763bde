"""What can go wrong with a table, in words that name the table and the thing in it."""

from __future__ import annotations


class TableError(Exception):
    """Anything about a table that an operator has to look at."""


class NotWritable(TableError):
    """The folder or the catalog takes nothing from us."""


class SchemaChanged(TableError):
    """The rows have columns or types that the table does not take."""


class Conflict(TableError):
    """Somebody else committed in between: look at the table again and try once more. Never seen by users."""


class TooManyConflicts(TableError):
    """Others commit so often that no attempt got through."""


class AnotherCheckpoint(TableError):
    """The application's batches were numbered by another checkpoint, and nothing else tells rows apart."""


class AnotherApplication(TableError):
    """Another application has put rows of the same records into the table: nothing tells whether they are the same."""


class TopicRecreated(TableError):
    """The offsets in the table belong to a topic of the same name that was deleted."""


class FilesLost(TableError):
    """Files of a batch went before its commit: the batch has to be written again."""
