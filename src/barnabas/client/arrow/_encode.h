/* Columns to record batches: partitions by murmur2, records into one open batch per partition, without Python.
 *
 * Offsets in a column's memory are the caller's: each is compared with the size of the data before it is used. The
 * memory belongs to Arrow arrays, which nobody changes.
 */
#ifndef BARNABAS_ENCODE_H
#define BARNABAS_ENCODE_H

#include "../../wire/_bytes.h"
#include "_vectors.h"

#define MAX_RECORD_BYTES (INT32_MAX / 2)

/* The numbers are encoding.py's Refusal. */
enum { ENCODED, NO_ROOM = -1, REFUSED_OFFSETS = 1, REFUSED_PARTITION, REFUSED_SIZE, REFUSED_HEADER_KEY,
       REFUSED_TIMESTAMP };

/* ---- columns in ---- */

typedef struct {
    const uint8_t *valid;   /* bits, or NULL where all are valid */
    const uint8_t *numbers; /* offsets or values */
    const uint8_t *data;
    int64_t data_size, count; /* count is of rows, from start on */
    int64_t start;
    int is_given;
} column_t;

static inline int is_null(const column_t *column, int64_t row)
{
    uint64_t at = (uint64_t)(column->start + row);
    return !column->is_given || (column->valid != NULL && !(column->valid[at >> 3] >> (at & 7) & 1));
}

static inline int32_t int32_at(const column_t *column, int64_t row)
{
    int32_t number;
    memcpy(&number, column->numbers + (size_t)(column->start + row) * 4, 4);
    return number;
}

static inline int64_t int64_at(const column_t *column, int64_t row)
{
    int64_t number;
    memcpy(&number, column->numbers + (size_t)(column->start + row) * 8, 8);
    return number;
}

typedef struct {
    const uint8_t *at;
    int32_t length; /* -1 for null */
} field_t;

static inline int field_of(const column_t *column, int64_t row, field_t *field)
{
    field->at = NULL;
    field->length = -1;
    if (is_null(column, row))
        return ENCODED;
    int32_t from = int32_at(column, row), to = int32_at(column, row + 1);
    if (from < 0 || to < from || to > column->data_size)
        return REFUSED_OFFSETS;
    field->at = column->data + from;
    field->length = to - from;
    return ENCODED;
}

typedef struct {
    int64_t rows, now_ms;
    column_t key, value, timestamp, partition, headers, header_key, header_value;
} table_t;

/* ---- batches out ---- */

typedef struct {
    vector_t bytes;
    int64_t base_timestamp, max_timestamp;
    int32_t partition, count;
} open_t;

typedef struct {
    open_t *open;
    int32_t partition_count, sticky;
    int64_t max_batch_bytes, open_bytes;
    vector_t sealed; /* of open_t */
} encoder_t;

static inline void write_be(uint8_t *at, uint64_t number, int bytes)
{
    for (int i = bytes - 1; i >= 0; i--, number >>= 8)
        at[i] = (uint8_t)number;
}

static void write_header(open_t *batch)
{
    uint8_t *at = batch->bytes.data;
    memset(at, 0, HEADER_SIZE);
    write_be(at + 8, batch->bytes.size - LOG_OVERHEAD, 4);
    memset(at + 12, 0xFF, 4); /* leader epoch */
    at[16] = 2;
    write_be(at + 23, (uint64_t)(batch->count - 1), 4);
    write_be(at + 27, (uint64_t)batch->base_timestamp, 8);
    write_be(at + 35, (uint64_t)batch->max_timestamp, 8);
    memset(at + 43, 0xFF, 14); /* producer id and epoch, base sequence */
    write_be(at + 57, (uint64_t)batch->count, 4);
}

/* What is known of a batch only when it is sent, and the checksum over all. */
static void stamp(uint8_t *at, size_t size, int attributes, int64_t producer_id, int producer_epoch, int base_sequence)
{
    write_be(at + 21, (uint64_t)attributes, 2);
    write_be(at + 43, (uint64_t)producer_id, 8);
    write_be(at + 51, (uint64_t)producer_epoch, 2);
    write_be(at + 53, (uint64_t)base_sequence, 4);
    write_be(at + 17, crc32c(at + 21, size - 21), 4);
}

static int seal(encoder_t *encoder, open_t *batch)
{
    if (reserve(&encoder->sealed, sizeof *batch) < 0)
        return NO_ROOM;
    write_header(batch);
    put_bytes(&encoder->sealed, (const uint8_t *)batch, sizeof *batch);
    encoder->open_bytes -= (int64_t)batch->bytes.size;
    /* Records without a key go to the next partition when a batch is full (KIP-480). */
    if (batch->partition == encoder->sticky)
        encoder->sticky = (encoder->sticky + 1) % encoder->partition_count;
    batch->bytes = (vector_t){0};
    batch->count = 0;
    return ENCODED;
}

static int seal_all(encoder_t *encoder)
{
    for (int32_t i = 0; i < encoder->partition_count; i++)
        if (encoder->open[i].count > 0 && seal(encoder, &encoder->open[i]) < 0)
            return NO_ROOM;
    return ENCODED;
}

/* ---- records ---- */

static inline uint32_t zigzag32(int32_t number)
{
    return (uint32_t)number << 1 ^ (number < 0 ? 0xFFFFFFFFu : 0);
}

static inline uint64_t zigzag64(int64_t number)
{
    return (uint64_t)number << 1 ^ (number < 0 ? UINT64_MAX : 0);
}

static inline int varint_size(uint64_t raw)
{
    int size = 1;
    for (; raw >= 0x80; raw >>= 7)
        size++;
    return size;
}

static inline void put_varint(vector_t *out, uint64_t raw)
{
    for (; raw >= 0x80; raw >>= 7)
        out->data[out->size++] = (uint8_t)(raw | 0x80);
    out->data[out->size++] = (uint8_t)raw;
}

static inline int64_t field_size(field_t field)
{
    return varint_size(zigzag32(field.length)) + (field.length > 0 ? field.length : 0);
}

static inline void put_field(vector_t *out, field_t field)
{
    put_varint(out, zigzag32(field.length));
    put_bytes(out, field.at, field.length > 0 ? (size_t)field.length : 0);
}

static uint32_t murmur2(const uint8_t *at, uint32_t length)
{
    const uint32_t m = 0x5BD1E995u;
    uint32_t value = 0x9747B28Cu ^ length;
    for (; length >= 4; length -= 4, at += 4) {
        uint32_t word = (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        word *= m;
        value = value * m ^ (word ^ word >> 24) * m;
    }
    if (length >= 3)
        value ^= (uint32_t)at[2] << 16;
    if (length >= 2)
        value ^= (uint32_t)at[1] << 8;
    if (length >= 1)
        value = (value ^ at[0]) * m;
    value = (value ^ value >> 13) * m;
    return value ^ value >> 15;
}

typedef struct {
    field_t key, value;
    int64_t timestamp;
    int32_t partition, first_header, header_count;
    int is_sticky; /* the partition was ours to choose */
    int64_t header_bytes;
} record_t;

static int header_of(const table_t *table, int64_t index, field_t *key, field_t *value)
{
    if (field_of(&table->header_key, index, key) != ENCODED || field_of(&table->header_value, index, value) != ENCODED)
        return REFUSED_OFFSETS;
    return key->length < 0 ? REFUSED_HEADER_KEY : ENCODED;
}

static int measure_headers(const table_t *table, int64_t row, record_t *record)
{
    field_t key, value;
    record->header_count = record->first_header = 0;
    record->header_bytes = 1;
    if (is_null(&table->headers, row))
        return ENCODED;
    int32_t from = int32_at(&table->headers, row), to = int32_at(&table->headers, row + 1);
    if (from < 0 || to < from || to > table->header_key.count || to > table->header_value.count)
        return REFUSED_OFFSETS;
    record->first_header = from;
    record->header_count = to - from;
    record->header_bytes = varint_size(zigzag32(to - from));
    for (int32_t i = from; i < to; i++) {
        int refusal = header_of(table, i, &key, &value);
        if (refusal != ENCODED)
            return refusal;
        record->header_bytes += field_size(key) + field_size(value);
    }
    return ENCODED;
}

static int choose_partition(const encoder_t *encoder, const table_t *table, int64_t row, record_t *record)
{
    record->is_sticky = 0;
    if (!is_null(&table->partition, row))
        record->partition = int32_at(&table->partition, row);
    else if (record->key.length >= 0) {
        uint32_t hash = murmur2(record->key.at, (uint32_t)record->key.length) & 0x7FFFFFFFu;
        record->partition = (int32_t)(hash % (uint32_t)encoder->partition_count);
    }
    else {
        record->partition = encoder->sticky;
        record->is_sticky = 1;
    }
    return record->partition < 0 || record->partition >= encoder->partition_count ? REFUSED_PARTITION : ENCODED;
}

static int read_row(const encoder_t *encoder, const table_t *table, int64_t row, record_t *record)
{
    int refusal;
    if (field_of(&table->key, row, &record->key) != ENCODED || field_of(&table->value, row, &record->value) != ENCODED)
        return REFUSED_OFFSETS;
    if ((refusal = choose_partition(encoder, table, row, record)) != ENCODED ||
        (refusal = measure_headers(table, row, record)) != ENCODED)
        return refusal;
    record->timestamp = table->now_ms;
    if (!is_null(&table->timestamp, row)) {
        int64_t microseconds = int64_at(&table->timestamp, row);
        if (microseconds < 0)
            return REFUSED_TIMESTAMP;
        record->timestamp = microseconds / 1000;
    }
    return ENCODED;
}

static int64_t body_size(const record_t *record, int64_t timestamp_delta, int32_t offset_delta)
{
    return 1 + varint_size(zigzag64(timestamp_delta)) + varint_size(zigzag32(offset_delta)) + field_size(record->key) +
           field_size(record->value) + record->header_bytes;
}

static void put_record(vector_t *out, const table_t *table, const record_t *record, int64_t body,
                       int64_t timestamp_delta, int32_t offset_delta)
{
    field_t key = {NULL, -1}, value = {NULL, -1};
    put_varint(out, zigzag32((int32_t)body));
    out->data[out->size++] = 0;
    put_varint(out, zigzag64(timestamp_delta));
    put_varint(out, zigzag32(offset_delta));
    put_field(out, record->key);
    put_field(out, record->value);
    put_varint(out, zigzag32(record->header_count));
    for (int32_t i = 0; i < record->header_count; i++) {
        header_of(table, (int64_t)record->first_header + i, &key, &value);
        put_field(out, key);
        put_field(out, value);
    }
}

static int open_batch(encoder_t *encoder, open_t *batch, const record_t *record)
{
    if (reserve(&batch->bytes, HEADER_SIZE) < 0)
        return NO_ROOM;
    batch->bytes.size = HEADER_SIZE;
    batch->base_timestamp = batch->max_timestamp = record->timestamp;
    batch->partition = record->partition;
    encoder->open_bytes += HEADER_SIZE;
    return ENCODED;
}

/* The batch with room for the record, a new one where the open one is full; NULL when memory ends. */
static open_t *batch_for(encoder_t *encoder, record_t *record, int64_t *body)
{
    for (;;) {
        open_t *batch = &encoder->open[record->partition];
        int64_t base = batch->count ? batch->base_timestamp : record->timestamp;
        *body = body_size(record, record->timestamp - base, batch->count);
        if (batch->count == 0)
            return *body > MAX_RECORD_BYTES || open_batch(encoder, batch, record) == ENCODED ? batch : NULL;
        if ((int64_t)batch->bytes.size + *body + 5 <= encoder->max_batch_bytes)
            return batch;
        if (seal(encoder, batch) < 0)
            return NULL;
        if (record->is_sticky)
            record->partition = encoder->sticky;
    }
}

static int append_record(encoder_t *encoder, const table_t *table, record_t *record)
{
    int64_t body;
    open_t *batch = batch_for(encoder, record, &body);
    if (batch == NULL)
        return NO_ROOM;
    if (body > MAX_RECORD_BYTES)
        return REFUSED_SIZE;
    if (reserve(&batch->bytes, (size_t)body + 5) < 0)
        return NO_ROOM;
    encoder->open_bytes -= (int64_t)batch->bytes.size;
    put_record(&batch->bytes, table, record, body, record->timestamp - batch->base_timestamp, batch->count);
    encoder->open_bytes += (int64_t)batch->bytes.size;
    if (record->timestamp > batch->max_timestamp)
        batch->max_timestamp = record->timestamp;
    batch->count++;
    return ENCODED;
}

/* All rows, or up to the one that is refused, whose number is left in *row. */
static int append_rows(encoder_t *encoder, const table_t *table, int64_t *row)
{
    record_t record;
    for (*row = 0; *row < table->rows; ++*row) {
        int refusal = read_row(encoder, table, *row, &record);
        if (refusal == ENCODED)
            refusal = append_record(encoder, table, &record);
        if (refusal != ENCODED)
            return refusal;
    }
    return ENCODED;
}

#endif
