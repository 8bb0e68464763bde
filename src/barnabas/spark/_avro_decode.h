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
#include "../client/arrow/_utf8.h"
#include "_avro_columns.h"

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
