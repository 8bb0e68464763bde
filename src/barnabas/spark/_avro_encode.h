/* Columns to Avro records by a compiled schema, without Python.
 *
 * The nodes are those of _avro_decode.h; each that has a column reads it from memory that Arrow arrays own. A row that
 * the schema cannot hold leaves no bytes behind and is told of with its reason.
 */
#ifndef BARNABAS_AVRO_ENCODE_H
#define BARNABAS_AVRO_ENCODE_H

#include "_avro_decode.h"

/* Further numbers of avro.py's Reason. */
enum { NULL_VALUE = 14, BAD_UUID, BAD_MEMORY };

typedef struct {
    const uint8_t *valid, *numbers, *data;
    int64_t start, count, numbers_size, data_size;
} source_t;

typedef struct {
    const program_t *program;
    const source_t *sources;
    const uint8_t *prefix; /* stands before each record */
    size_t prefix_size;
    vector_t out, offsets, valid, faults;
    int64_t null_count;
    int32_t bad_node;
} writer_t;

static inline const source_t *source_of(const writer_t *writer, const node_t *node)
{
    return &writer->sources[node - writer->program->nodes];
}

static inline int refuse(writer_t *writer, const node_t *node, int reason)
{
    writer->bad_node = (int32_t)(node - writer->program->nodes);
    return reason;
}

static inline int is_null_at(const source_t *source, int64_t row)
{
    uint64_t at = (uint64_t)(source->start + row);
    return source->valid != NULL && !(source->valid[at >> 3] >> (at & 7) & 1);
}

/* Whether the value of an optional is null, which its only child's column tells. */
static int is_missing(const writer_t *writer, const node_t *node, int64_t row)
{
    return node->kind == K_NULL || is_null_at(source_of(writer, node), row);
}

static int write_raw(writer_t *writer, const void *bytes, size_t size)
{
    if (reserve(&writer->out, size) < 0)
        return NO_MEMORY;
    put_bytes(&writer->out, bytes, size);
    return FINE;
}

static int write_long(writer_t *writer, int64_t number)
{
    uint64_t raw = (uint64_t)number << 1 ^ (number < 0 ? UINT64_MAX : 0);
    if (reserve(&writer->out, 10) < 0)
        return NO_MEMORY;
    for (; raw >= 0x80; raw >>= 7)
        writer->out.data[writer->out.size++] = (uint8_t)(raw | 0x80);
    writer->out.data[writer->out.size++] = (uint8_t)raw;
    return FINE;
}

static int64_t long_at(const source_t *source, int64_t row, int width)
{
    int64_t wide;
    int32_t narrow;
    const uint8_t *at = source->numbers + (source->start + row) * width;
    memcpy(width == 8 ? (void *)&wide : (void *)&narrow, at, (size_t)width);
    return width == 8 ? wide : narrow;
}

/* The bytes of a string, or the items of a list. */
static int span_at(const source_t *source, int64_t row, int64_t most, int64_t *from, int64_t *to)
{
    *from = long_at(source, row, 4);
    *to = long_at(source, row + 1, 4);
    return *from < 0 || *to < *from || *to > most ? BAD_MEMORY : FINE;
}

static int write_value(writer_t *writer, const node_t *node, int64_t row);

static int write_symbol(writer_t *writer, const node_t *node, const uint8_t *text, int64_t length)
{
    const program_t *program = writer->program;
    for (int32_t i = 0; i < node->b; i++) {
        int32_t symbol = node->a + i, from = symbol ? program->symbol_ends[symbol - 1] : 0;
        if (program->symbol_ends[symbol] - from == length && memcmp(program->symbols + from, text, (size_t)length) == 0)
            return write_long(writer, i);
    }
    return refuse(writer, node, BAD_ENUM);
}

static int write_uuid(writer_t *writer, const node_t *node, const uint8_t *text, int64_t length)
{
    uint8_t bytes[16] = {0};
    int digits = 0;
    for (int64_t i = 0; i < length; i++) {
        uint8_t letter = text[i] | 0x20;
        int is_digit = text[i] >= '0' && text[i] <= '9', is_letter = letter >= 'a' && letter <= 'f';
        int value = is_digit ? text[i] - '0' : is_letter ? letter - 'a' + 10 : -1;
        if (value < 0 && text[i] == '-' && (i == 8 || i == 13 || i == 18 || i == 23))
            continue;
        if (value < 0 || digits >= 32)
            return refuse(writer, node, BAD_UUID);
        bytes[digits / 2] |= (uint8_t)(value << (digits % 2 ? 0 : 4));
        digits++;
    }
    return length == 36 && digits == 32 ? write_raw(writer, bytes, 16) : refuse(writer, node, BAD_UUID);
}

static int write_string(writer_t *writer, const node_t *node, int64_t row)
{
    const source_t *source = source_of(writer, node);
    int64_t from, to;
    if (span_at(source, row, source->data_size, &from, &to) != FINE)
        return refuse(writer, node, BAD_MEMORY);
    const uint8_t *text = source->data + from;
    int64_t length = to - from;
    if (node->kind == K_ENUM)
        return write_symbol(writer, node, text, length);
    if (node->kind == K_UUID)
        return write_uuid(writer, node, text, length);
    if (node->kind == K_FIXED)
        return length == node->a ? write_raw(writer, text, (size_t)length) : refuse(writer, node, BAD_LENGTH);
    return write_long(writer, length) == FINE ? write_raw(writer, text, (size_t)length) : NO_MEMORY;
}

/* 128 bits to the fewest bytes that hold the number, or to so many as the fixed has. */
static int write_decimal(writer_t *writer, const node_t *node, int64_t row)
{
    const source_t *source = source_of(writer, node);
    const uint8_t *at = source->numbers + (source->start + row) * 16;
    uint8_t sign = at[15] & 0x80 ? 0xFF : 0;
    int size = 16;
    while (size > 1 && at[size - 1] == sign && ((at[size - 2] ^ sign) & 0x80) == 0)
        size--;
    if (node->kind == K_DECIMAL) {
        if (write_long(writer, size) != FINE)
            return NO_MEMORY;
    } else if (size > node->a) {
        return refuse(writer, node, BAD_DECIMAL);
    }
    int64_t whole = node->kind == K_DECIMAL ? size : node->a;
    if (reserve(&writer->out, (size_t)whole) < 0)
        return NO_MEMORY;
    for (int64_t i = whole - 1; i >= 0; i--)
        writer->out.data[writer->out.size++] = i < size ? at[i] : sign;
    return FINE;
}

static int write_items(writer_t *writer, const node_t *node, int64_t row)
{
    const node_t *value = child_of(writer->program, node, node->kind == K_MAP);
    const node_t *key = node->kind == K_MAP ? child_of(writer->program, node, 0) : NULL;
    const node_t *counted = value->kind == K_OPTIONAL ? child_of(writer->program, value, 0) : value;
    int64_t from, to;
    int reason;
    if (span_at(source_of(writer, node), row, source_of(writer, counted)->count, &from, &to) != FINE ||
        (key != NULL && to > source_of(writer, key)->count))
        return refuse(writer, node, BAD_MEMORY);
    if (to > from && write_long(writer, to - from) != FINE)
        return NO_MEMORY;
    for (; from < to; from++)
        if ((key != NULL && (reason = write_value(writer, key, from)) != FINE) ||
            (reason = write_value(writer, value, from)) != FINE)
            return reason;
    return write_long(writer, 0);
}

static int write_union(writer_t *writer, const node_t *node, int64_t row)
{
    const program_t *program = writer->program;
    for (int32_t i = 0; i < node->child_count; i++) {
        const node_t *child = child_of(program, node, i);
        const node_t *seen = child->kind == K_OPTIONAL ? child_of(program, child, 0) : child;
        int is_whole_null = node->kind == K_UNION && is_null_at(source_of(writer, node), row);
        if (is_whole_null || is_missing(writer, seen, row))
            continue;
        if (write_long(writer, i + (node->a >= 0 && i >= node->a)) != FINE)
            return NO_MEMORY;
        return write_value(writer, child, row);
    }
    return node->a >= 0 ? write_long(writer, node->a) : refuse(writer, node, NULL_VALUE);
}

/* The wider branch holds every value of the column. */
static int write_number(writer_t *writer, const node_t *node, int64_t row)
{
    const source_t *source = source_of(writer, node);
    if (is_null_at(source, row))
        return node->a >= 0 ? write_long(writer, node->a) : refuse(writer, node, NULL_VALUE);
    int32_t branch = 0;
    while (branch < node->b - 1 && !(node->first_child >> branch & 1))
        branch++;
    if (write_long(writer, branch) != FINE)
        return NO_MEMORY;
    if (node->kind == K_ANY_LONG)
        return write_long(writer, long_at(source, row, 8));
    return write_raw(writer, source->numbers + (source->start + row) * 8, 8);
}

static int write_record(writer_t *writer, const node_t *node, int64_t row)
{
    int reason = FINE;
    for (int32_t i = 0; reason == FINE && i < node->child_count; i++)
        reason = write_value(writer, child_of(writer->program, node, i), row);
    return reason;
}

static int write_value(writer_t *writer, const node_t *node, int64_t row)
{
    if (node->kind == K_NULL)
        return FINE;
    if (node->kind == K_OPTIONAL || node->kind == K_UNION)
        return write_union(writer, node, row);
    if (node->kind == K_ANY_LONG || node->kind == K_ANY_DOUBLE)
        return write_number(writer, node, row);
    const source_t *source = source_of(writer, node);
    if (is_null_at(source, row))
        return refuse(writer, node, NULL_VALUE);
    uint64_t at = (uint64_t)(source->start + row);
    uint8_t bit;
    int64_t number;
    switch (node->kind) {
    case K_BOOLEAN:
        bit = source->numbers[at >> 3] >> (at & 7) & 1;
        return write_raw(writer, &bit, 1);
    case K_INT:
        return write_long(writer, long_at(source, row, 4));
    case K_LONG:
        return write_long(writer, long_at(source, row, 8));
    case K_MILLIS: /* rounded down, before 1970 too */
        number = long_at(source, row, 8);
        return write_long(writer, number / 1000 - (number % 1000 < 0));
    case K_FLOAT: case K_DOUBLE:
        return write_raw(writer, source->numbers + at * (uint64_t)width_of(node), (size_t)width_of(node));
    case K_DECIMAL: case K_DECIMAL_FIXED:
        return write_decimal(writer, node, row);
    case K_RECORD:
        return write_record(writer, node, row);
    case K_ARRAY: case K_MAP:
        return write_items(writer, node, row);
    default:
        return write_string(writer, node, row);
    }
}

/* How many bytes a column's numbers must have. */
static int64_t numbers_of(const node_t *node, int64_t rows)
{
    if (has_offsets(node))
        return (rows + 1) * 4;
    return node->kind == K_BOOLEAN ? (rows + 7) / 8 : rows * width_of(node);
}

static int write_rows(writer_t *writer, int64_t rows)
{
    const node_t *root = writer->program->nodes;
    if (reserve(&writer->offsets, ((size_t)rows + 1) * 4) < 0 || reserve_bits(&writer->valid, (size_t)rows) < 0)
        return NO_MEMORY;
    put_i32(&writer->offsets, 0);
    for (int64_t row = 0; row < rows; row++) {
        size_t before = writer->out.size;
        int is_absent = is_null_at(source_of(writer, root), row);
        int reason = is_absent ? FINE : write_raw(writer, writer->prefix, writer->prefix_size);
        if (!is_absent && reason == FINE)
            reason = write_value(writer, root, row);
        if (reason == FINE && writer->out.size > MAX_COLUMN_BYTES)
            reason = refuse(writer, root, TOO_LARGE);
        if (reason == NO_MEMORY)
            return NO_MEMORY;
        if (reason != FINE) {
            fault_t fault = {row, reason, writer->bad_node, 0};
            if (reserve(&writer->faults, sizeof fault) < 0)
                return NO_MEMORY;
            put_bytes(&writer->faults, (const uint8_t *)&fault, sizeof fault);
            writer->out.size = before;
        }
        if (reason != FINE || is_absent)
            writer->null_count++;
        else
            set_bit(&writer->valid, (size_t)row);
        put_i32(&writer->offsets, (int32_t)writer->out.size);
    }
    return FINE;
}

#endif
