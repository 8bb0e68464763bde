/* Avro records to the memory of columns by a compiled schema, without Python.
 *
 * The schema comes as a table of nodes (avro_schema.py); each node that makes a column owns that column's memory. A row
 * that cannot be decoded is taken back out of all columns, becomes null and is told of with its reason: it costs no
 * other row. Lengths are compared with what is left before they are used, and what costs no bytes on the wire (items
 * of nothing) is bounded by a budget.
 */
#ifndef BARNABAS_AVRO_DECODE_H
#define BARNABAS_AVRO_DECODE_H

#include "../wire/_bytes.h"
#include "../wire/_utf8.h"
#include "../wire/_vectors.h"

#define NODE_FIELDS 5
#define FREE_ITEMS 1024 /* of a row's arrays and maps, beside one for each byte of it */
#define CONFLUENT_BYTES 5
#define MAX_COLUMN_BYTES INT32_MAX

/* The numbers are avro_schema.py's Kind. */
enum { K_NULL, K_BOOLEAN, K_INT, K_LONG, K_MILLIS, K_FLOAT, K_DOUBLE, K_BYTES, K_STRING, K_FIXED, K_UUID, K_ENUM,
       K_DECIMAL, K_DECIMAL_FIXED, K_RECORD, K_ARRAY, K_MAP, K_OPTIONAL, K_UNION, K_ANY_LONG, K_ANY_DOUBLE, KINDS };

/* The numbers are avro.py's Reason. */
enum { FINE, NO_MEMORY = -1, SHORT = 1, BAD_VARINT, BAD_LENGTH, BAD_BOOLEAN, BAD_UTF8, BAD_ENUM, BAD_BRANCH,
       BAD_DECIMAL, BAD_TIMESTAMP, TOO_MANY, TOO_LARGE, TRAILING, NOT_FRAMED };

typedef struct {
    int32_t kind, a, b, first_child, child_count;
    uint64_t bound_low, bound_high; /* of a decimal: 10^b - 1 */
    int64_t count, null_count;
    vector_t valid, offsets, data;
} node_t;

typedef struct {
    int64_t row;
    int32_t reason, node, position;
} fault_t;

typedef struct {
    node_t *nodes;
    int32_t *children, *symbol_ends;
    uint8_t *symbols;
    int32_t node_count, child_total, symbol_count;
    vector_t faults;
    /* of the row at hand */
    const uint8_t *start, *at, *end;
    int64_t budget;
    int32_t bad_node;
} program_t;

static inline node_t *child_of(const program_t *program, const node_t *node, int32_t index)
{
    return &program->nodes[program->children[node->first_child + index]];
}

static inline int fail(program_t *program, const node_t *node, int reason)
{
    program->bad_node = (int32_t)(node - program->nodes);
    return reason;
}

/* ---- columns ---- */

/* Bits are kept from the first null on. */
static inline int mark(node_t *node, int is_valid)
{
    if (is_valid && node->null_count == 0) {
        node->count++;
        return FINE;
    }
    if (node->null_count == 0) {
        node->valid.size = 0;
        if (reserve_bits(&node->valid, (size_t)node->count + 1) < 0)
            return NO_MEMORY;
        memset(node->valid.data, 0xFF, node->valid.size);
        node->valid.data[node->count >> 3] &= (uint8_t)((1u << (node->count & 7)) - 1);
    } else if (reserve_bits(&node->valid, (size_t)node->count + 1) < 0) {
        return NO_MEMORY;
    }
    if (is_valid)
        set_bit(&node->valid, (size_t)node->count);
    else
        node->null_count++;
    node->count++;
    return FINE;
}

static int width_of(const node_t *node)
{
    switch (node->kind) {
    case K_INT: case K_FLOAT: return 4;
    case K_LONG: case K_MILLIS: case K_DOUBLE: case K_ANY_LONG: case K_ANY_DOUBLE: return 8;
    case K_DECIMAL: case K_DECIMAL_FIXED: return 16;
    default: return 0;
    }
}

static inline int has_offsets(const node_t *node)
{
    switch (node->kind) {
    case K_BYTES: case K_STRING: case K_FIXED: case K_UUID: case K_ENUM: case K_ARRAY: case K_MAP: return 1;
    default: return 0;
    }
}

static inline int put_number(node_t *node, const void *number, size_t width)
{
    if (reserve(&node->data, width) < 0)
        return NO_MEMORY;
    put_bytes(&node->data, number, width);
    return mark(node, 1);
}

static inline int put_offset(node_t *node, int64_t end, int is_valid)
{
    if (reserve(&node->offsets, 4) < 0)
        return NO_MEMORY;
    put_i32(&node->offsets, (int32_t)end);
    return mark(node, is_valid);
}

static int put_string(program_t *program, node_t *node, const uint8_t *from, int64_t length)
{
    if (length > MAX_COLUMN_BYTES - (int64_t)node->data.size)
        return fail(program, node, TOO_LARGE);
    if (reserve(&node->data, (size_t)length) < 0)
        return NO_MEMORY;
    put_bytes(&node->data, from, (size_t)length);
    return put_offset(node, (int64_t)node->data.size, 1);
}

static int put_null(program_t *program, node_t *node)
{
    static const uint8_t zeros[16];
    int width = width_of(node);
    if (node->kind == K_OPTIONAL)
        return put_null(program, child_of(program, node, 0));
    if (width > 0) {
        if (reserve(&node->data, (size_t)width) < 0)
            return NO_MEMORY;
        put_bytes(&node->data, zeros, (size_t)width);
    } else if (has_offsets(node)) {
        int32_t last;
        memcpy(&last, node->offsets.data + node->offsets.size - 4, 4);
        return put_offset(node, last, 0);
    } else if (node->kind == K_BOOLEAN) {
        if (reserve_bits(&node->data, (size_t)node->count + 1) < 0)
            return NO_MEMORY;
    } else {
        for (int32_t i = 0; i < node->child_count; i++)
            if (put_null(program, child_of(program, node, i)) < 0)
                return NO_MEMORY;
    }
    return mark(node, 0);
}

static void clear_bits(vector_t *bits, int64_t from)
{
    size_t whole = (size_t)(from + 7) / 8;
    if (bits->size > whole)
        bits->size = whole;
    if (from & 7 && bits->size == whole)
        bits->data[whole - 1] &= (uint8_t)((1u << (from & 7)) - 1);
}

/* Back to so many rows. */
static void cut(program_t *program, node_t *node, int64_t count)
{
    if (node->kind == K_OPTIONAL) {
        cut(program, child_of(program, node, 0), count);
        return;
    }
    if (node->null_count > 0) {
        for (int64_t i = count; i < node->count; i++)
            node->null_count -= !(node->valid.data[i >> 3] >> (i & 7) & 1);
        clear_bits(&node->valid, count);
    }
    int64_t inner = count;
    if (has_offsets(node)) {
        int32_t last;
        node->offsets.size = ((size_t)count + 1) * 4;
        memcpy(&last, node->offsets.data + node->offsets.size - 4, 4);
        inner = last;
        if (node->child_count == 0)
            node->data.size = (size_t)last;
    } else if (node->kind == K_BOOLEAN) {
        clear_bits(&node->data, count);
    } else {
        node->data.size = (size_t)count * (size_t)width_of(node);
    }
    node->count = count;
    for (int32_t i = 0; i < node->child_count; i++)
        cut(program, child_of(program, node, i), inner);
}

/* ---- decoding ---- */

static inline int read_long(program_t *program, const node_t *node, int64_t *number)
{
    const uint8_t *at = program->at;
    if (at < program->end && *at < 0x80) {
        *number = (int64_t)(*at >> 1) ^ -(int64_t)(*at & 1);
        program->at++;
        return FINE;
    }
    at = read_varlong(at, program->end, number);
    if (at == NULL)
        return fail(program, node, BAD_VARINT);
    program->at = at;
    return FINE;
}

static inline int read_bytes(program_t *program, const node_t *node, int64_t length, const uint8_t **bytes)
{
    if (length < 0)
        return fail(program, node, BAD_LENGTH);
    if (length > program->end - program->at)
        return fail(program, node, SHORT);
    *bytes = program->at;
    program->at += length;
    return FINE;
}

static int read_sized(program_t *program, const node_t *node, const uint8_t **bytes, int64_t *length)
{
    int reason = read_long(program, node, length);
    return reason != FINE ? reason : read_bytes(program, node, *length, bytes);
}

/* Big-endian two's complement of any length to 128 bits. */
static int take_decimal(program_t *program, node_t *node, const uint8_t *bytes, int64_t length)
{
    uint64_t parts[2] = {0, 0}; /* low, high */
    uint8_t sign = length > 0 && bytes[0] & 0x80 ? 0xFF : 0;
    for (; length > 16; length--)
        if (*bytes++ != sign)
            return fail(program, node, BAD_DECIMAL);
    if (length == 16 && (bytes[0] & 0x80) != (sign & 0x80))
        return fail(program, node, BAD_DECIMAL);
    for (int i = 0; i < 16; i++) {
        uint8_t byte = i < length ? bytes[length - 1 - i] : sign;
        parts[i / 8] |= (uint64_t)byte << (i % 8 * 8);
    }
    uint64_t low = parts[0], high = parts[1];
    if (sign) {
        low = ~low + 1;
        high = ~high + (low == 0);
    }
    if (high > node->bound_high || (high == node->bound_high && low > node->bound_low))
        return fail(program, node, BAD_DECIMAL);
    return put_number(node, parts, 16);
}

static int put_uuid(program_t *program, node_t *node, const uint8_t *bytes)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t text[36], *to = text;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *to++ = '-';
        *to++ = (uint8_t)digits[bytes[i] >> 4];
        *to++ = (uint8_t)digits[bytes[i] & 15];
    }
    return put_string(program, node, text, 36);
}

static int take(program_t *program, node_t *node);

static int take_items(program_t *program, node_t *node)
{
    node_t *key = node->kind == K_MAP ? child_of(program, node, 0) : NULL;
    node_t *value = child_of(program, node, node->kind == K_MAP);
    node_t *counted = key != NULL ? key : value->kind == K_OPTIONAL ? child_of(program, value, 0) : value;
    for (;;) {
        int64_t count, size;
        int reason = read_long(program, node, &count);
        if (reason != FINE)
            return reason;
        if (count == 0)
            return put_offset(node, counted->count, 1);
        if (count < 0) {
            if (count == INT64_MIN)
                return fail(program, node, BAD_LENGTH);
            count = -count;
            if ((reason = read_long(program, node, &size)) != FINE)
                return reason;
        }
        if (count > program->budget)
            return fail(program, node, TOO_MANY);
        program->budget -= count;
        for (; count > 0; count--) {
            if (counted->count >= MAX_COLUMN_BYTES - 1)
                return fail(program, node, TOO_LARGE);
            if (key != NULL && (reason = take(program, key)) != FINE)
                return reason;
            if ((reason = take(program, value)) != FINE)
                return reason;
        }
    }
}

static int take_union(program_t *program, node_t *node)
{
    int64_t branch;
    int reason = read_long(program, node, &branch);
    if (reason != FINE)
        return reason;
    if (branch < 0 || branch >= node->b)
        return fail(program, node, BAD_BRANCH);
    if (branch == node->a)
        return put_null(program, node->kind == K_OPTIONAL ? child_of(program, node, 0) : node);
    if (node->kind == K_OPTIONAL)
        return take(program, child_of(program, node, 0));
    int32_t chosen = (int32_t)branch - (node->a >= 0 && branch > node->a);
    for (int32_t i = 0; i < node->child_count; i++) {
        node_t *child = child_of(program, node, i);
        reason = i == chosen ? take(program, child) : put_null(program, child);
        if (reason != FINE)
            return reason;
    }
    return mark(node, 1);
}

/* A union of int and long, or of float and double, and perhaps null: one column of the wider. In place of a first child
 * there is a bit for every branch of eight bytes. */
static int take_number(program_t *program, node_t *node)
{
    int64_t branch, number;
    const uint8_t *bytes;
    int reason = read_long(program, node, &branch);
    if (reason != FINE)
        return reason;
    if (branch < 0 || branch >= node->b)
        return fail(program, node, BAD_BRANCH);
    if (branch == node->a)
        return put_null(program, node);
    if (node->kind == K_ANY_LONG)
        return (reason = read_long(program, node, &number)) != FINE ? reason : put_number(node, &number, 8);
    int is_wide = node->first_child >> branch & 1;
    if ((reason = read_bytes(program, node, is_wide ? 8 : 4, &bytes)) != FINE)
        return reason;
    double wide;
    float narrow;
    memcpy(is_wide ? (void *)&wide : (void *)&narrow, bytes, is_wide ? 8 : 4);
    if (!is_wide)
        wide = narrow;
    return put_number(node, &wide, 8);
}

static int take_varint(program_t *program, node_t *node)
{
    int64_t number;
    int reason = read_long(program, node, &number);
    if (reason != FINE)
        return reason;
    if (node->kind == K_INT) {
        int32_t narrow = (int32_t)number;
        if (narrow != number)
            return fail(program, node, BAD_VARINT);
        return put_number(node, &narrow, 4);
    }
    if (node->kind == K_MILLIS) {
        if (number > INT64_MAX / 1000 || number < INT64_MIN / 1000)
            return fail(program, node, BAD_TIMESTAMP);
        number *= 1000;
    }
    if (node->kind == K_ENUM) {
        if (number < 0 || number >= node->b)
            return fail(program, node, BAD_ENUM);
        int32_t symbol = node->a + (int32_t)number, from = symbol ? program->symbol_ends[symbol - 1] : 0;
        return put_string(program, node, program->symbols + from, program->symbol_ends[symbol] - from);
    }
    return put_number(node, &number, 8);
}

static int take_boolean(program_t *program, node_t *node)
{
    const uint8_t *bytes;
    int reason = read_bytes(program, node, 1, &bytes);
    if (reason != FINE)
        return reason;
    if (*bytes > 1)
        return fail(program, node, BAD_BOOLEAN);
    if (reserve_bits(&node->data, (size_t)node->count + 1) < 0)
        return NO_MEMORY;
    if (*bytes)
        set_bit(&node->data, (size_t)node->count);
    return mark(node, 1);
}

static int take_bytes(program_t *program, node_t *node)
{
    const uint8_t *bytes = NULL;
    int64_t length = node->a;
    int is_sized = node->kind == K_BYTES || node->kind == K_STRING || node->kind == K_DECIMAL;
    int reason = is_sized ? read_sized(program, node, &bytes, &length) : read_bytes(program, node, length, &bytes);
    if (reason != FINE)
        return reason;
    if (node->kind == K_DECIMAL || node->kind == K_DECIMAL_FIXED)
        return take_decimal(program, node, bytes, length);
    if (node->kind == K_UUID)
        return put_uuid(program, node, bytes);
    if (node->kind == K_STRING && !is_utf8(bytes, (size_t)length))
        return fail(program, node, BAD_UTF8);
    return put_string(program, node, bytes, length);
}

static int take(program_t *program, node_t *node)
{
    const uint8_t *bytes;
    int reason;
    switch (node->kind) {
    case K_INT: case K_LONG: case K_MILLIS: case K_ENUM:
        return take_varint(program, node);
    case K_BYTES: case K_STRING: case K_FIXED: case K_UUID: case K_DECIMAL: case K_DECIMAL_FIXED:
        return take_bytes(program, node);
    case K_FLOAT: case K_DOUBLE:
        reason = read_bytes(program, node, width_of(node), &bytes);
        return reason != FINE ? reason : put_number(node, bytes, (size_t)width_of(node));
    case K_BOOLEAN:
        return take_boolean(program, node);
    case K_OPTIONAL: case K_UNION:
        return take_union(program, node);
    case K_ANY_LONG: case K_ANY_DOUBLE:
        return take_number(program, node);
    case K_ARRAY: case K_MAP:
        return take_items(program, node);
    case K_RECORD:
        for (int32_t i = 0; i < node->child_count; i++)
            if ((reason = take(program, child_of(program, node, i))) != FINE)
                return reason;
        return mark(node, 1);
    default:
        return mark(node, 0); /* a null */
    }
}

/* ---- rows ---- */

static int keep_fault(program_t *program, int64_t row, int reason)
{
    fault_t fault = {row, reason, program->bad_node, (int32_t)(program->at - program->start)};
    if (reserve(&program->faults, sizeof fault) < 0)
        return NO_MEMORY;
    put_bytes(&program->faults, (const uint8_t *)&fault, sizeof fault);
    return FINE;
}

static int take_row(program_t *program, const uint8_t *bytes, int32_t length, int is_confluent)
{
    program->start = program->at = bytes;
    program->end = bytes + length;
    program->budget = (int64_t)length + FREE_ITEMS;
    if (is_confluent) {
        if (length < CONFLUENT_BYTES || bytes[0] != 0)
            return fail(program, program->nodes, NOT_FRAMED);
        program->at += CONFLUENT_BYTES;
    }
    int reason = take(program, program->nodes);
    return reason == FINE && program->at != program->end ? fail(program, program->nodes, TRAILING) : reason;
}

typedef struct {
    int64_t rows, start, data_size;
    const uint8_t *valid, *offsets, *data;
    int is_confluent, stops_at_fault;
} input_t;

static int take_rows(program_t *program, const input_t *input)
{
    for (int64_t row = 0; row < input->rows; row++) {
        int64_t at = input->start + row;
        int32_t ends[2];
        int reason;
        if (input->valid != NULL && !(input->valid[at >> 3] >> (at & 7) & 1)) {
            if (put_null(program, program->nodes) < 0)
                return NO_MEMORY;
            continue;
        }
        memcpy(ends, input->offsets + at * 4, 8);
        if (ends[0] < 0 || ends[1] < ends[0] || ends[1] > input->data_size)
            return BAD_LENGTH;
        if ((reason = take_row(program, input->data + ends[0], ends[1] - ends[0], input->is_confluent)) == FINE)
            continue;
        if (reason == NO_MEMORY || keep_fault(program, row, reason) < 0)
            return NO_MEMORY;
        cut(program, program->nodes, row);
        if (put_null(program, program->nodes) < 0)
            return NO_MEMORY;
        if (input->stops_at_fault)
            return FINE;
    }
    return FINE;
}

static int begin_columns(program_t *program)
{
    for (int32_t i = 0; i < program->node_count; i++) {
        node_t *node = &program->nodes[i];
        node->count = node->null_count = 0;
        node->valid.size = node->offsets.size = node->data.size = 0;
        if (reserve(&node->offsets, 4) < 0)
            return NO_MEMORY;
        if (has_offsets(node))
            put_i32(&node->offsets, 0);
    }
    program->faults.size = 0;
    return FINE;
}

#endif
