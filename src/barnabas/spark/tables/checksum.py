"""A checksum of records that does not depend on their order, column by column, without a Python object per record.

Each record's offset, key, value and timestamp are hashed to 64 bits and the hashes are added up modulo 2^64: the sum of
two disjoint sets of records is the sum of their sums, however they were split into files or tasks, and a topic and a
table can be summed apart. Bytes are hashed as words of eight with odd factors, so that no change of a single word goes
unnoticed; words of one place are multiplied for all rows at once. Modulo 2^64 a word's highest bit means the same
whatever the factor, so each word begins with the last byte of the one before it, where that bit is a low one. It finds
faults, not forgers.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

Words: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"

WORD = 8
STEP = 7
"""From one word to the next: see above."""
CHUNK_WORDS = 128
"""Long values are cut into chunks of so many words, so that one of them does not make a loop of its length."""

MASK = 2**64 - 1

HASHED_COLUMNS = {"k": "key", "v": "value", "t": "timestamp"}
"""Letters of a checksum's columns; the offset is always in it."""

_OFFSET_SEED = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0xD6E8FEB86659FD93)
_LENGTH_FACTOR = np.uint64(0xA0761D6478BD642F)


class Checksum(NamedTuple):
    columns: str
    """Letters of HASHED_COLUMNS, in that order."""
    value: int

    def __str__(self) -> str:
        return f"{self.columns}:{self.value:016x}"

    def plus(self, other: Checksum | None) -> Checksum | None:
        """None where the two speak of different columns."""
        if other is None or other.columns != self.columns:
            return None
        return Checksum(self.columns, (self.value + other.value) & MASK)


def parse(text: str | None) -> Checksum | None:
    if text is None:
        return None
    columns, _, value = text.partition(":")
    return Checksum(columns, int(value, 16))


def add(first: Checksum | None, second: Checksum | None) -> Checksum | None:
    return first.plus(second) if first is not None else None


def hashable_columns(schema: pa.Schema) -> str:
    """The columns of a table that are still as a topic has them."""
    letters = ""
    for letter, name in HASHED_COLUMNS.items():
        index = schema.get_field_index(name)
        if index >= 0 and (
            _is_bytes(schema.field(index).type) if letter != "t" else _is_time(schema.field(index).type)
        ):
            letters += letter
    return letters


def of_rows(batch: pa.RecordBatch | pa.Table, columns: str) -> Checksum:
    """The checksum of all rows; ``offset`` and the named columns must be there."""
    total = 0
    table = batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
    for chunk in table.select(["offset", *(HASHED_COLUMNS[letter] for letter in columns)]).to_batches():
        with np.errstate(over="ignore"):
            total += int(_row_hashes(chunk, columns).sum(dtype=np.uint64))
    return Checksum(columns, total & MASK)


def _row_hashes(batch: pa.RecordBatch, columns: str) -> Words:
    hashes = _mixed(_integers(batch.column("offset")) + _OFFSET_SEED)
    for letter in columns:
        column = batch.column(HASHED_COLUMNS[letter])
        hashes = _mixed(hashes ^ (_integers(column) if letter == "t" else hash_values(column)))
    return hashes


def _is_bytes(kind: pa.DataType) -> bool:
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string)
    return any(test(kind) for test in tests)


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.unit == "us")


def _mixed(words: Words) -> Words:
    """Every bit of the word has a say in every bit of the result (the finalizer of MurmurHash3)."""
    words = words ^ (words >> np.uint64(33))
    words *= np.uint64(0xFF51AFD7ED558CCD)
    words ^= words >> np.uint64(33)
    words *= np.uint64(0xC4CEB9FE1A85EC53)
    words ^= words >> np.uint64(33)
    return words


def _factors(count: int, seed: int) -> Words:
    with np.errstate(over="ignore"):
        return _mixed(np.arange(1, count + 1, dtype=np.uint64) * _OFFSET_SEED + np.uint64(seed)) | np.uint64(1)


_WORD_FACTORS = _factors(CHUNK_WORDS, 0x51ED)
_CHUNK_FACTORS = _factors(1024, 0xC2B2)


def _chunk_factors(count: int) -> Words:
    return _CHUNK_FACTORS if count <= len(_CHUNK_FACTORS) else _factors(count, 0xC2B2)


def _integers(column: pa.Array) -> Words:
    """Whole numbers and times as words; nulls have one of their own."""
    validity = column.is_valid() if column.null_count else None
    numbers = column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column.cast(pa.int64())
    words = (numbers.fill_null(0) if validity is not None else numbers).to_numpy(zero_copy_only=False).astype(np.uint64)
    return words if validity is None else np.where(validity.to_numpy(zero_copy_only=False), words, _NULL)


def hash_values(column: pa.Array) -> Words:
    """The hash of each binary or text value."""
    starts, ends, data = _layout(column)
    with np.errstate(over="ignore"):
        sums = _sum_words(starts, ends, data)
        hashes = _mixed(sums + (ends - starts).astype(np.uint64) * _LENGTH_FACTOR)
    if not column.null_count:
        return hashes
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), hashes, _NULL)


def _layout(column: pa.Array) -> tuple[Any, Any, Any]:
    """Where each value begins and ends in the column's bytes, and the bytes."""
    is_large = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    kind = np.dtype(np.int64 if is_large else np.int32)
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, kind)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    octets = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    return bounds[:-1], bounds[1:], octets


def _sum_words(starts: Any, ends: Any, data: Any) -> Words:
    """The sum over each value's words, each times the factor of its place."""
    full_words = np.maximum(ends - starts - 1, 0) // STEP
    sums: Words = _tails(starts, ends, full_words, data)
    if not len(starts) or int(full_words.max()) == 0:
        return sums
    words = np.ndarray((len(data) - WORD + 1,), "<u8", data, strides=(1,))
    chunks = -(-full_words // CHUNK_WORDS)
    if int(chunks.max()) <= 1:
        sums += _sum_chunks(starts, full_words, words) * _CHUNK_FACTORS[0]
        return sums
    rows = np.repeat(np.arange(len(starts)), chunks)
    number = np.arange(len(rows)) - np.repeat(np.cumsum(chunks) - chunks, chunks)
    sizes = np.minimum(full_words[rows] - number * CHUNK_WORDS, CHUNK_WORDS)
    parts = _sum_chunks(starts[rows] + number * (CHUNK_WORDS * STEP), sizes, words)
    parts *= _chunk_factors(int(chunks.max()) + 1)[number]
    with_words = np.flatnonzero(chunks)
    sums[with_words] += np.add.reduceat(parts, np.cumsum(chunks)[with_words] - chunks[with_words])
    return sums


def _sum_chunks(starts: Any, sizes: Any, words: Any) -> Words:
    """Place by place for all chunks that are so long, the longest first, so that those are always a front part."""
    longest, shortest = int(sizes.max()), int(sizes.min())
    order = None if longest == shortest else np.argsort(-sizes, kind="stable")
    at = starts if order is None else starts[order]
    counts = np.full(longest, len(starts)) if order is None else _longer_than(sizes, longest)
    sums = np.zeros(len(starts), np.uint64)
    for place in range(longest):
        count = int(counts[place])
        sums[:count] += words[at[:count] + place * STEP] * _WORD_FACTORS[place]
    if order is None:
        return sums
    found = np.empty_like(sums)
    found[order] = sums
    return found


def _longer_than(sizes: Any, longest: int) -> Any:
    """How many chunks have more than 0, 1, 2, … words."""
    return len(sizes) - np.cumsum(np.bincount(sizes, minlength=longest + 1))[:longest]


def _tails(starts: Any, ends: Any, full_words: Any, data: Any) -> Words:
    """What is left behind the last full word, as a word: the eight bytes that end there, without the first of them."""
    rest = ends - starts - full_words * STEP
    places, chunk = full_words % CHUNK_WORDS, full_words // CHUNK_WORDS
    head = np.concatenate([np.zeros(WORD, np.uint8), data[:WORD]])
    last_words = np.ndarray((len(head) - WORD + 1,), "<u8", head, strides=(1,))[np.minimum(ends, len(head) - WORD)]
    if len(data) >= WORD:
        words = np.ndarray((len(data) - WORD + 1,), "<u8", data, strides=(1,))
        last_words = np.where(ends >= WORD, words[np.maximum(ends - WORD, 0)], last_words)
    shifts = ((WORD - rest) * 8 % 64).astype(np.uint64)
    tails = np.where(rest > 0, last_words >> shifts, np.uint64(0))
    factors = _chunk_factors(int(chunk.max()) + 2 if len(chunk) else 1)
    weighted: Words = tails * _WORD_FACTORS[places] * factors[chunk]
    return weighted
