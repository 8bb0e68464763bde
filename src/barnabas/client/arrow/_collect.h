/* Record batches to the memory of columns: the walk over batches and records, without Python.
 *
 * The rules of _walk.c hold here too: a size is read once into a local, compared with what is left, and only then
 * used; arithmetic on what was read is unsigned or range-checked. Room for a batch is made before its records are
 * walked: keys and values of a batch never take more than the batch does.
 */
#ifndef BARNABAS_COLLECT_H
#define BARNABAS_COLLECT_H

#include "../../wire/_bytes.h"
#include "_utf8.h"
#include "_vectors.h"

#define SMALLEST_RECORD 7
#define LOG_APPEND_TIME 0x08
#define TRANSACTIONAL 0x10
#define CONTROL 0x20
#define MAX_MILLISECONDS (INT64_MAX / 1000)

/* ---- reasons and steps: the numbers are spark/columns.py's ---- */

enum { WHOLE, BAD_VARINT, BAD_LENGTH, BAD_FIELDS, BAD_OFFSET, BAD_KEY, BAD_VALUE, BAD_HEADER_COUNT, BAD_HEADER,
       BAD_TIMESTAMP, TRAILING, BAD_COUNT };
enum { NO_MEMORY = -2, FOUND = -1, AT_END, PARTIAL, SPECIAL, REACHED, FULL, STEP_LENGTH, STEP_MAGIC, STEP_HEADER,
       STEP_CRC, STEP_RECORD };

/* ---- what is collected ---- */

typedef struct {
    vector_t offsets, data, valid;
    int64_t null_count;
} strings_t;

typedef struct {
    int with_headers, has_bad_utf8;
    int64_t max_bytes, used_bytes, rows, header_count, without_headers;
    strings_t key, value, header_key, header_value;
    vector_t offset, timestamp, timestamp_type, list_offsets, list_valid;
} columns_t;

typedef struct {
    int64_t base_offset, last_offset, base_timestamp, max_timestamp;
    int32_t count;
    int16_t attributes;
    Py_ssize_t size;
} batch_t;

typedef struct {
    int64_t first, stop; /* rows outside are walked and left out */
    int32_t index;
} range_t;

static int reserve_strings(strings_t *strings, int64_t count, int64_t more, size_t bytes)
{
    if (reserve(&strings->offsets, ((size_t)more + 1) * 4) < 0 || reserve(&strings->data, bytes) < 0 ||
        reserve_bits(&strings->valid, (size_t)(count + more)) < 0)
        return -1;
    if (strings->offsets.size == 0)
        put_i32(&strings->offsets, 0);
    return 0;
}

static int reserve_batch(columns_t *columns, int64_t more, size_t bytes)
{
    if (reserve_strings(&columns->key, columns->rows, more, bytes) < 0 ||
        reserve_strings(&columns->value, columns->rows, more, bytes) < 0 ||
        reserve(&columns->offset, (size_t)more * 8) < 0 || reserve(&columns->timestamp, (size_t)more * 8) < 0 ||
        reserve(&columns->timestamp_type, (size_t)more * 4) < 0)
        return -1;
    if (!columns->with_headers)
        return 0;
    if (reserve(&columns->list_offsets, ((size_t)more + 1) * 4) < 0 ||
        reserve_bits(&columns->list_valid, (size_t)(columns->rows + more)) < 0 ||
        reserve_strings(&columns->header_key, columns->header_count, 0, 0) < 0 ||
        reserve_strings(&columns->header_value, columns->header_count, 0, 0) < 0)
        return -1;
    if (columns->list_offsets.size == 0)
        put_i32(&columns->list_offsets, 0);
    return 0;
}

static inline void put_string(strings_t *strings, int64_t index, const uint8_t *from, int32_t length)
{
    if (length >= 0) {
        put_bytes(&strings->data, from, (size_t)length);
        set_bit(&strings->valid, (size_t)index);
    } else {
        strings->null_count++;
    }
    put_i32(&strings->offsets, (int32_t)strings->data.size);
}

/* ---- records ---- */

/* Where the field's bytes begin, and its length, -1 for null; NULL with the reason set. */
static inline const uint8_t *read_field(const uint8_t *at, const uint8_t *end, int bad, int smallest, int *reason,
                                        int32_t *length)
{
    at = read_varint(at, end, length);
    if (at == NULL)
        *reason = BAD_VARINT;
    else if (*length < smallest || *length > end - at) {
        *reason = bad;
        at = NULL;
    }
    return at;
}

static int put_header(columns_t *columns, const uint8_t *key, int32_t key_length, const uint8_t *value,
                      int32_t value_length)
{
    int64_t count = columns->header_count;
    size_t value_bytes = value_length > 0 ? (size_t)value_length : 0;
    if (reserve_strings(&columns->header_key, count, 1, (size_t)key_length) < 0 ||
        reserve_strings(&columns->header_value, count, 1, value_bytes) < 0)
        return NO_MEMORY;
    columns->has_bad_utf8 |= !is_utf8(key, (size_t)key_length);
    put_string(&columns->header_key, count, key, key_length);
    put_string(&columns->header_value, count, value, value_length);
    columns->header_count++;
    return WHOLE;
}

static int take_headers(columns_t *columns, const uint8_t **position, const uint8_t *end, int keep)
{
    const uint8_t *at = *position;
    int32_t count, key_length, value_length;
    int reason = WHOLE;
    if ((at = read_varint(at, end, &count)) == NULL)
        return BAD_VARINT;
    if (count < 0 || count > end - at)
        return BAD_HEADER_COUNT;
    for (int32_t i = 0; i < count; i++) {
        const uint8_t *key = read_field(at, end, BAD_HEADER, 0, &reason, &key_length);
        if (key == NULL)
            return reason;
        const uint8_t *value = read_field(key + key_length, end, BAD_HEADER, -1, &reason, &value_length);
        if (value == NULL)
            return reason;
        if (keep && (reason = put_header(columns, key, key_length, value, value_length)) != WHOLE)
            return reason;
        at = value_length > 0 ? value + value_length : value;
    }
    if (keep) {
        if (count > 0)
            set_bit(&columns->list_valid, (size_t)columns->rows);
        else
            columns->without_headers++;
        put_i32(&columns->list_offsets, (int32_t)columns->header_count);
    }
    *position = at;
    return WHOLE;
}

static inline int64_t microseconds(int64_t milliseconds)
{
    if (milliseconds > MAX_MILLISECONDS)
        milliseconds = MAX_MILLISECONDS;
    else if (milliseconds < -MAX_MILLISECONDS)
        milliseconds = -MAX_MILLISECONDS;
    return milliseconds * 1000;
}

/* The body of one record, from its attributes to its end. */
static inline int take_record(columns_t *columns, const uint8_t *at, const uint8_t *end, const batch_t *batch,
                              const range_t *range, int64_t *previous_delta)
{
    int64_t timestamp_delta, timestamp = batch->max_timestamp;
    int32_t offset_delta, key_length, value_length;
    int reason = WHOLE;
    if (at >= end)
        return BAD_FIELDS;
    at++;
    if ((at = read_varlong(at, end, &timestamp_delta)) == NULL || (at = read_varint(at, end, &offset_delta)) == NULL)
        return BAD_VARINT;
    if (offset_delta <= *previous_delta || offset_delta > batch->last_offset - batch->base_offset)
        return BAD_OFFSET;
    *previous_delta = offset_delta;
    const uint8_t *key = read_field(at, end, BAD_KEY, -1, &reason, &key_length);
    if (key == NULL)
        return reason;
    at = key_length > 0 ? key + key_length : key;
    const uint8_t *value = read_field(at, end, BAD_VALUE, -1, &reason, &value_length);
    if (value == NULL)
        return reason;
    at = value_length > 0 ? value + value_length : value;
    int64_t offset = batch->base_offset + offset_delta;
    int keep = offset >= range->first && offset < range->stop;
    if ((reason = take_headers(columns, &at, end, keep && columns->with_headers)) != WHOLE)
        return reason;
    if (at != end)
        return BAD_FIELDS;
    if (!(batch->attributes & LOG_APPEND_TIME)) {
        if (timestamp_delta > 0 ? batch->base_timestamp > INT64_MAX - timestamp_delta
                                : batch->base_timestamp < INT64_MIN - timestamp_delta)
            return BAD_TIMESTAMP;
        timestamp = batch->base_timestamp + timestamp_delta;
    }
    if (!keep)
        return WHOLE;
    put_string(&columns->key, columns->rows, key, key_length);
    put_string(&columns->value, columns->rows, value, value_length);
    put_i64(&columns->offset, offset);
    put_i64(&columns->timestamp, microseconds(timestamp));
    put_i32(&columns->timestamp_type, (batch->attributes & LOG_APPEND_TIME) != 0);
    columns->rows++;
    return WHOLE;
}

static int take_records(columns_t *columns, const uint8_t *at, const uint8_t *end, const batch_t *batch,
                        range_t *range)
{
    int64_t previous_delta = -1;
    range->index = -1;
    if (batch->count < 0 || batch->count > (end - at) / SMALLEST_RECORD)
        return BAD_COUNT;
    if (reserve_batch(columns, batch->count, (size_t)(end - at)) < 0)
        return NO_MEMORY;
    columns->used_bytes += end - at;
    for (range->index = 0; range->index < batch->count; range->index++) {
        int32_t length;
        if ((at = read_varint(at, end, &length)) == NULL)
            return BAD_VARINT;
        if (length < 0 || length > end - at)
            return BAD_LENGTH;
        int reason = take_record(columns, at, at + length, batch, range, &previous_delta);
        if (reason != WHOLE)
            return reason;
        at += length;
    }
    return at == end ? WHOLE : TRAILING;
}

static int is_full(const columns_t *columns, int64_t bytes)
{
    return columns->rows > 0 && bytes > columns->max_bytes - columns->used_bytes;
}

/* ---- batches ---- */

static int read_batch(const uint8_t *at, Py_ssize_t left, batch_t *batch)
{
    if (left == 0)
        return AT_END;
    if (left < HEADER_SIZE)
        return PARTIAL;
    int32_t length = read_i32(at + 8);
    if (length < HEADER_SIZE - LOG_OVERHEAD)
        return STEP_LENGTH;
    if (at[16] != 2)
        return STEP_MAGIC;
    batch->size = (Py_ssize_t)length + LOG_OVERHEAD;
    if (left < batch->size)
        return PARTIAL;
    int32_t last_offset_delta = read_i32(at + 23);
    batch->base_offset = read_i64(at);
    batch->attributes = read_i16(at + 21);
    batch->base_timestamp = read_i64(at + 27);
    batch->max_timestamp = read_i64(at + 35);
    batch->count = read_i32(at + 57);
    if (batch->base_offset < 0 || last_offset_delta < 0 || batch->count < 0 ||
        batch->base_offset >= INT64_MAX - last_offset_delta)
        return STEP_HEADER;
    batch->last_offset = batch->base_offset + last_offset_delta;
    return FOUND;
}

typedef struct {
    Py_ssize_t position, end;
    int64_t next_offset;
    int has_transactions, reason;
    range_t range;
} walk_t;

/* Values are most of what is fetched, and memory that grows is copied: it is made large enough at once. */
static int reserve_values(columns_t *columns, int64_t bytes)
{
    int64_t left = columns->max_bytes - columns->used_bytes;
    if (bytes > left)
        bytes = left;
    return bytes > 0 ? reserve(&columns->value.data, (size_t)bytes) : 0;
}

/* Goes on for as long as there are plain batches. Returns a step; the position is then at the batch that stopped it. */
static int walk_batches(columns_t *columns, const uint8_t *data, walk_t *walk)
{
    batch_t batch;
    int step;
    if (reserve_values(columns, walk->end - walk->position) < 0)
        return NO_MEMORY;
    while ((step = read_batch(data + walk->position, walk->end - walk->position, &batch)) == FOUND) {
        const uint8_t *at = data + walk->position;
        int is_marker = walk->has_transactions && batch.attributes & CONTROL;
        if (batch.base_offset >= walk->range.stop)
            return REACHED;
        if (batch.last_offset < walk->next_offset && !is_marker) {
            walk->position += batch.size;
            continue;
        }
        if (crc32c(at + 21, (size_t)batch.size - 21) != read_u32(at + 17))
            return STEP_CRC;
        if (is_marker || (walk->has_transactions && batch.attributes & TRANSACTIONAL))
            return SPECIAL;
        if (!(batch.attributes & CONTROL)) {
            if (batch.attributes & 0x07)
                return SPECIAL;
            if (is_full(columns, batch.size))
                return FULL;
            walk->reason = take_records(columns, at + HEADER_SIZE, at + batch.size, &batch, &walk->range);
            if (walk->reason != WHOLE)
                return walk->reason == NO_MEMORY ? NO_MEMORY : STEP_RECORD;
        }
        walk->next_offset = batch.last_offset + 1;
        walk->position += batch.size;
    }
    return step;
}

#endif
