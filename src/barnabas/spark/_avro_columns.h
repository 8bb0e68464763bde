/* The nodes of a compiled Avro schema and the columns that they fill, without Python. */
#ifndef BARNABAS_AVRO_COLUMNS_H
#define BARNABAS_AVRO_COLUMNS_H

#include "../client/arrow/_vectors.h"

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

#endif
