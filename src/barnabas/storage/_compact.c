/* The native half of barnabas.storage.offset_map: which records of a log the cleaner keeps.
 *
 * The offset map is memory that Python gives (a bytearray): slots of 24 bytes, a key's 128-bit hash and the offset of its
 * latest record, probed in a row; an empty slot is all zeros. Keys are hashed with SipHash-2-4 under a key drawn for each
 * cleaning, so nobody can make two keys meet on purpose.
 *
 * The same rules as in _walk.c keep it safe, and it lets the GIL go: nothing but this thread knows the map and the
 * buffers. The chunk functions take the batches that most logs are made of (uncompressed, no transaction, no control
 * record) as a row; at any other they stop, and Python sees to that one.
 */
#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../wire/_bytes.h"

#define SLOT_BYTES 24
#define TRANSACTIONAL 0x10
#define CONTROL 0x20
#define LOG_APPEND_TIME 0x08
#define DELETE_HORIZON 0x40
#define CODEC_MASK 0x07

/* The numbers are compaction.py's Step. */
enum { FOUND = -1, AT_END, PARTIAL, SPECIAL, FULL, BAD };

/* ---- SipHash-2-4 with 128 bits ---- */

typedef struct {
    uint64_t low, high;
} hash_t;

#define ROTL(x, b) (uint64_t)(((x) << (b)) | ((x) >> (64 - (b))))
#define SIP_ROUND                                                                                                      \
    do {                                                                                                               \
        v0 += v1; v1 = ROTL(v1, 13); v1 ^= v0; v0 = ROTL(v0, 32);                                                      \
        v2 += v3; v3 = ROTL(v3, 16); v3 ^= v2;                                                                         \
        v0 += v3; v3 = ROTL(v3, 21); v3 ^= v0;                                                                         \
        v2 += v1; v1 = ROTL(v1, 17); v1 ^= v2; v2 = ROTL(v2, 32);                                                      \
    } while (0)

static hash_t hash_key(const uint64_t secret[2], const uint8_t *data, size_t size)
{
    uint64_t v0 = 0x736f6d6570736575ull ^ secret[0], v1 = 0x646f72616e646f6dull ^ secret[1] ^ 0xee;
    uint64_t v2 = 0x6c7967656e657261ull ^ secret[0], v3 = 0x7465646279746573ull ^ secret[1];
    uint64_t last = (uint64_t)size << 56, word;
    hash_t hash;
    for (; size >= 8; size -= 8, data += 8) {
        memcpy(&word, data, 8);
        v3 ^= word;
        SIP_ROUND;
        SIP_ROUND;
        v0 ^= word;
    }
    for (size_t i = 0; i < size; i++)
        last |= (uint64_t)data[i] << (8 * i);
    v3 ^= last;
    SIP_ROUND;
    SIP_ROUND;
    v0 ^= last;
    v2 ^= 0xee;
    SIP_ROUND; SIP_ROUND; SIP_ROUND; SIP_ROUND;
    hash.low = v0 ^ v1 ^ v2 ^ v3;
    v1 ^= 0xdd;
    SIP_ROUND; SIP_ROUND; SIP_ROUND; SIP_ROUND;
    hash.high = v0 ^ v1 ^ v2 ^ v3;
    if (hash.low == 0 && hash.high == 0)
        hash.high = 1;
    return hash;
}

/* ---- the offset map ---- */

typedef struct {
    uint8_t *slots;
    uint64_t count;
    uint64_t secret[2];
    int64_t used, limit;
} map_t;

typedef struct {
    hash_t hash;
    int64_t offset;
} slot_t;

/* The key's slot, or the empty one where it would go. There always is an empty one: limit < count. */
static uint8_t *find_slot(const map_t *map, hash_t hash, slot_t *slot)
{
    uint64_t index = hash.low % map->count;
    for (;;) {
        uint8_t *at = map->slots + index * SLOT_BYTES;
        memcpy(slot, at, SLOT_BYTES);
        if ((slot->hash.low == hash.low && slot->hash.high == hash.high) ||
            (slot->hash.low == 0 && slot->hash.high == 0))
            return at;
        if (++index == map->count)
            index = 0;
    }
}

static int put(map_t *map, const uint8_t *key, int32_t length, int64_t offset)
{
    slot_t slot;
    hash_t hash = hash_key(map->secret, key, (size_t)length);
    uint8_t *at = find_slot(map, hash, &slot);
    if (slot.hash.low == 0 && slot.hash.high == 0) {
        if (map->used >= map->limit)
            return -1;
        map->used++;
    }
    slot.hash = hash;
    slot.offset = offset;
    memcpy(at, &slot, SLOT_BYTES);
    return 0;
}

/* The latest offset of the key, or -1. */
static int64_t get(const map_t *map, const uint8_t *key, int32_t length)
{
    slot_t slot;
    find_slot(map, hash_key(map->secret, key, (size_t)length), &slot);
    return slot.hash.low == 0 && slot.hash.high == 0 ? -1 : slot.offset;
}

/* ---- records ---- */

typedef struct {
    int64_t timestamp_delta;
    int32_t offset_delta, key_length, value_length;
    const uint8_t *start, *body, *offset, *key, *end; /* the length varint, attributes, offset delta, key, past it */
} record_t;

/* The record at ``at``: 0, or -1 where it is none. Headers were looked at when it was produced. */
static inline int read_record(const uint8_t *at, const uint8_t *end, record_t *record)
{
    int32_t length;
    record->start = at;
    if ((at = read_varint(at, end, &length)) == NULL || length < 1 || length > end - at)
        return -1;
    record->body = at;
    record->end = end = at + length;
    if ((at = read_varlong(at + 1, end, &record->timestamp_delta)) == NULL)
        return -1;
    record->offset = at;
    if ((at = read_varint(at, end, &record->offset_delta)) == NULL || record->offset_delta < 0)
        return -1;
    if ((at = read_varint(at, end, &record->key_length)) == NULL || record->key_length < -1 ||
        record->key_length > end - at)
        return -1;
    record->key = at;
    if (record->key_length > 0)
        at += record->key_length;
    if (read_varint(at, end, &record->value_length) == NULL || record->value_length < -1)
        return -1;
    return 0;
}

static int index_records(map_t *map, const uint8_t *at, const uint8_t *end, int32_t count, int64_t base_offset,
                         int64_t min_offset)
{
    record_t record;
    for (; count > 0; count--, at = record.end) {
        if (read_record(at, end, &record) < 0)
            return BAD;
        int64_t offset = base_offset + record.offset_delta;
        if (record.key_length >= 0 && offset >= min_offset && put(map, record.key, record.key_length, offset) < 0)
            return FULL;
    }
    return at == end ? AT_END : BAD;
}

typedef struct {
    /* asked */
    int64_t latest_offset, base_offset, base_timestamp, shift;
    int keep_tombstones;
    /* found */
    int64_t max_timestamp;
    int32_t kept;
    int has_tombstones;
    uint8_t *out;
} filter_t;

static inline int keeps(const map_t *map, const filter_t *filter, const record_t *record)
{
    int64_t offset = filter->base_offset + record->offset_delta;
    if (offset > filter->latest_offset)
        return 1;
    if (record->key_length < 0 || (record->value_length < 0 && !filter->keep_tombstones))
        return 0;
    return offset >= get(map, record->key, record->key_length);
}

static uint8_t *write_varlong(uint8_t *out, int64_t number)
{
    uint64_t raw = (uint64_t)number << 1 ^ (0u - ((uint64_t)number >> 63));
    for (; raw > 0x7F; raw >>= 7)
        *out++ = (uint8_t)(raw | 0x80);
    *out++ = (uint8_t)raw;
    return out;
}

/* The record with its timestamp delta moved. At most 14 bytes longer than it was. */
static uint8_t *write_shifted(uint8_t *out, const record_t *record, int64_t shift)
{
    uint8_t delta[10];
    int64_t moved = (int64_t)((uint64_t)record->timestamp_delta - (uint64_t)shift);
    size_t delta_size = (size_t)(write_varlong(delta, moved) - delta);
    size_t rest = (size_t)(record->end - record->offset);
    out = write_varlong(out, (int64_t)(1 + delta_size + rest));
    *out++ = *record->body;
    memcpy(out, delta, delta_size);
    memcpy(out + delta_size, record->offset, rest);
    return out + delta_size + rest;
}

/* Copies the records that are kept behind filter->out, which has room for all of them. */
static int filter_records(const map_t *map, const uint8_t *at, const uint8_t *end, int32_t count, filter_t *filter)
{
    record_t record;
    filter->kept = filter->has_tombstones = 0;
    filter->max_timestamp = -1;
    for (; count > 0; count--, at = record.end) {
        if (read_record(at, end, &record) < 0)
            return BAD;
        if (!keeps(map, filter, &record))
            continue;
        int64_t timestamp = (int64_t)((uint64_t)filter->base_timestamp + (uint64_t)record.timestamp_delta);
        if (timestamp > filter->max_timestamp)
            filter->max_timestamp = timestamp;
        filter->has_tombstones |= record.value_length < 0;
        filter->kept++;
        if (filter->shift) {
            filter->out = write_shifted(filter->out, &record, filter->shift);
        } else {
            size_t size = (size_t)(record.end - record.start);
            memcpy(filter->out, record.start, size);
            filter->out += size;
        }
    }
    return at == end ? AT_END : BAD;
}

/* ---- batches ---- */

typedef struct {
    Py_ssize_t size;
    int64_t base_offset, last_offset, base_timestamp;
    int32_t count;
    int16_t attributes;
} batch_t;

static int read_batch(const uint8_t *at, Py_ssize_t left, batch_t *batch)
{
    if (left == 0)
        return AT_END;
    batch->size = HEADER_SIZE;
    if (left < HEADER_SIZE)
        return PARTIAL;
    int32_t length = read_i32(at + 8);
    if (length < HEADER_SIZE - LOG_OVERHEAD || at[16] != 2)
        return BAD;
    batch->size = (Py_ssize_t)length + LOG_OVERHEAD;
    if (left < batch->size)
        return PARTIAL;
    if (crc32c(at + 21, (size_t)batch->size - 21) != read_u32(at + 17))
        return BAD;
    int32_t delta = read_i32(at + 23);
    batch->base_offset = read_i64(at);
    batch->attributes = read_i16(at + 21);
    batch->base_timestamp = read_i64(at + 27);
    batch->count = read_i32(at + 57);
    if (batch->base_offset < 0 || delta < 0 || batch->count < 0 || batch->base_offset > INT64_MAX - INT32_MAX - 1)
        return BAD;
    batch->last_offset = batch->base_offset + delta;
    return batch->attributes & (CODEC_MASK | TRANSACTIONAL | CONTROL) ? SPECIAL : FOUND;
}

static void write_u32(uint8_t *at, uint32_t number)
{
    for (int i = 3; i >= 0; i--, number >>= 8)
        at[i] = (uint8_t)number;
}

static void write_i64(uint8_t *at, int64_t number)
{
    write_u32(at, (uint32_t)((uint64_t)number >> 32));
    write_u32(at + 4, (uint32_t)number);
}

typedef struct {
    Py_ssize_t at, end, needed;
    int64_t min_offset, latest_offset, now_ms;
    const int64_t *specials; /* ascending last offsets of batches that Python sees to */
    Py_ssize_t special_count;
    uint8_t *out;
} chunk_t;

static int index_chunk(map_t *map, const uint8_t *data, chunk_t *chunk)
{
    batch_t batch;
    int step;
    while ((step = read_batch(data + chunk->at, chunk->end - chunk->at, &batch)) == FOUND) {
        const uint8_t *at = data + chunk->at;
        step = index_records(map, at + HEADER_SIZE, at + batch.size, batch.count, batch.base_offset,
                             chunk->min_offset);
        if (step != AT_END)
            return step;
        if (batch.last_offset > chunk->latest_offset)
            chunk->latest_offset = batch.last_offset;
        chunk->at += batch.size;
    }
    chunk->needed = step == PARTIAL ? batch.size : 0;
    return step;
}

static int is_special(const chunk_t *chunk, int64_t offset)
{
    Py_ssize_t low = 0, high = chunk->special_count;
    while (low < high) {
        Py_ssize_t middle = low + (high - low) / 2;
        if (chunk->specials[middle] == offset)
            return 1;
        if (chunk->specials[middle] < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

/* One plain batch into chunk->out, which has as much room as there is data. */
static int filter_batch(const map_t *map, const uint8_t *at, const batch_t *batch, chunk_t *chunk)
{
    int has_horizon = batch->attributes & DELETE_HORIZON;
    uint8_t *out = chunk->out;
    filter_t filter = {
        .latest_offset = chunk->latest_offset,
        .base_offset = batch->base_offset,
        .base_timestamp = batch->base_timestamp,
        .keep_tombstones = !has_horizon || chunk->now_ms < batch->base_timestamp,
        .out = out + HEADER_SIZE,
    };
    int step = filter_records(map, at + HEADER_SIZE, at + batch->size, batch->count, &filter);
    if (step != AT_END)
        return step;
    if (filter.kept && filter.has_tombstones && !has_horizon)
        return SPECIAL;
    if (filter.kept == 0)
        return AT_END;
    memcpy(out, at, HEADER_SIZE);
    if (filter.kept < batch->count) {
        Py_ssize_t size = filter.out - out;
        write_u32(out + 8, (uint32_t)(size - LOG_OVERHEAD));
        if (!(batch->attributes & LOG_APPEND_TIME))
            write_i64(out + 35, filter.max_timestamp);
        write_u32(out + 57, (uint32_t)filter.kept);
        write_u32(out + 17, crc32c(out + 21, (size_t)size - 21));
    }
    chunk->out = filter.out;
    return AT_END;
}

static int filter_chunk(const map_t *map, const uint8_t *data, chunk_t *chunk)
{
    batch_t batch;
    int step;
    while ((step = read_batch(data + chunk->at, chunk->end - chunk->at, &batch)) == FOUND) {
        if (is_special(chunk, batch.last_offset))
            return SPECIAL;
        if ((step = filter_batch(map, data + chunk->at, &batch, chunk)) != AT_END)
            return step;
        chunk->at += batch.size;
    }
    chunk->needed = step == PARTIAL ? batch.size : 0;
    return step;
}

/* ---- Python ---- */

static int take_map(const Py_buffer *table, const Py_buffer *secret, map_t *map)
{
    map->slots = table->buf;
    map->count = (uint64_t)table->len / SLOT_BYTES;
    if (secret->len != 16 || map->used < 0 || map->limit < 0 || (uint64_t)map->limit >= map->count) {
        PyErr_SetString(PyExc_ValueError, "the map has no room or the secret is not of 16 bytes");
        return -1;
    }
    memcpy(map->secret, secret->buf, 16);
    return 0;
}

static int check_range(const Py_buffer *view, Py_ssize_t start, Py_ssize_t end)
{
    if (start >= 0 && start <= end && end <= view->len)
        return 0;
    PyErr_SetString(PyExc_ValueError, "range outside the buffer");
    return -1;
}

static void release(Py_buffer *first, Py_buffer *second, Py_buffer *third)
{
    PyBuffer_Release(first);
    PyBuffer_Release(second);
    PyBuffer_Release(third);
}

PyDoc_STRVAR(index_chunk_doc, "index_chunk(table, secret, used, limit, buffer, start, end, min_offset) -> "
                              "(step, stop, needed, used, latest_offset)");

static PyObject *py_index_chunk(PyObject *module, PyObject *args)
{
    Py_buffer table, secret, view;
    long long used, limit, min_offset;
    map_t map = {0};
    chunk_t chunk = {.latest_offset = -1};
    PyObject *result = NULL;
    int step;
    (void)module;
    if (!PyArg_ParseTuple(args, "w*y*LLy*nnL:index_chunk", &table, &secret, &used, &limit, &view, &chunk.at, &chunk.end,
                          &min_offset))
        return NULL;
    map.used = used;
    map.limit = limit;
    chunk.min_offset = min_offset;
    if (take_map(&table, &secret, &map) == 0 && check_range(&view, chunk.at, chunk.end) == 0) {
        Py_BEGIN_ALLOW_THREADS
        step = index_chunk(&map, view.buf, &chunk);
        Py_END_ALLOW_THREADS
        result = Py_BuildValue("(innLL)", step, chunk.at, chunk.needed, (long long)map.used,
                               (long long)chunk.latest_offset);
    }
    release(&table, &secret, &view);
    return result;
}

PyDoc_STRVAR(index_records_doc, "index_records(table, secret, used, limit, payload, count, base_offset, min_offset) -> "
                                "(step, used)");

static PyObject *py_index_records(PyObject *module, PyObject *args)
{
    Py_buffer table, secret, view;
    long long used, limit, base_offset, min_offset;
    map_t map = {0};
    PyObject *result = NULL;
    int count, step;
    (void)module;
    if (!PyArg_ParseTuple(args, "w*y*LLy*iLL:index_records", &table, &secret, &used, &limit, &view, &count,
                          &base_offset, &min_offset))
        return NULL;
    map.used = used;
    map.limit = limit;
    if (take_map(&table, &secret, &map) == 0) {
        const uint8_t *data = view.buf;
        Py_ssize_t size = view.len;
        Py_BEGIN_ALLOW_THREADS
        step = index_records(&map, data, data + size, count, base_offset, min_offset);
        Py_END_ALLOW_THREADS
        result = Py_BuildValue("(iL)", step, (long long)map.used);
    }
    release(&table, &secret, &view);
    return result;
}

PyDoc_STRVAR(filter_chunk_doc, "filter_chunk(table, secret, buffer, start, end, specials, latest_offset, now_ms, out) "
                               "-> (step, stop, needed, written)");

static PyObject *py_filter_chunk(PyObject *module, PyObject *args)
{
    Py_buffer table, secret, view, specials, out;
    long long latest_offset, now_ms;
    map_t map = {0};
    chunk_t chunk = {0};
    PyObject *result = NULL;
    int step;
    (void)module;
    if (!PyArg_ParseTuple(args, "w*y*y*nny*LLw*:filter_chunk", &table, &secret, &view, &chunk.at, &chunk.end, &specials,
                          &latest_offset, &now_ms, &out))
        return NULL;
    chunk.latest_offset = latest_offset;
    chunk.now_ms = now_ms;
    chunk.specials = specials.buf;
    chunk.special_count = specials.len / (Py_ssize_t)sizeof(int64_t);
    chunk.out = out.buf;
    if (take_map(&table, &secret, &map) == 0 && check_range(&view, chunk.at, chunk.end) == 0) {
        if (out.len < chunk.end - chunk.at) {
            PyErr_SetString(PyExc_ValueError, "no room for the result");
        } else {
            Py_BEGIN_ALLOW_THREADS
            step = filter_chunk(&map, view.buf, &chunk);
            Py_END_ALLOW_THREADS
            result = Py_BuildValue("(innn)", step, chunk.at, chunk.needed, (Py_ssize_t)(chunk.out - (uint8_t *)out.buf));
        }
    }
    release(&table, &secret, &view);
    PyBuffer_Release(&specials);
    PyBuffer_Release(&out);
    return result;
}

PyDoc_STRVAR(filter_records_doc,
             "filter_records(table, secret, payload, count, base_offset, base_timestamp, latest_offset, "
             "keep_tombstones, shift) -> (step, kept, has_tombstones, max_timestamp, records)");

static PyObject *py_filter_records(PyObject *module, PyObject *args)
{
    Py_buffer table, secret, view;
    long long base_offset, base_timestamp, latest_offset, shift;
    map_t map = {0};
    filter_t filter = {0};
    PyObject *result = NULL;
    int count, step;
    (void)module;
    if (!PyArg_ParseTuple(args, "w*y*y*iLLLpL:filter_records", &table, &secret, &view, &count, &base_offset,
                          &base_timestamp, &latest_offset, &filter.keep_tombstones, &shift))
        return NULL;
    filter.latest_offset = latest_offset;
    filter.base_offset = base_offset;
    filter.base_timestamp = base_timestamp;
    filter.shift = shift;
    if (count < 0 || count > view.len) {
        PyErr_SetString(PyExc_ValueError, "more records than bytes");
    } else if (take_map(&table, &secret, &map) == 0) {
        const uint8_t *data = view.buf;
        Py_ssize_t size = view.len;
        uint8_t *out = malloc((size_t)size + (shift ? 14 * (size_t)count : 0) + 1);
        if (out == NULL) {
            PyErr_NoMemory();
        } else {
            filter.out = out;
            Py_BEGIN_ALLOW_THREADS
            step = filter_records(&map, data, data + size, count, &filter);
            Py_END_ALLOW_THREADS
            result = Py_BuildValue("(iiOLy#)", step, (int)filter.kept, filter.has_tombstones ? Py_True : Py_False,
                                   (long long)filter.max_timestamp, (const char *)out,
                                   (Py_ssize_t)(filter.out - out));
        }
        free(out);
    }
    release(&table, &secret, &view);
    return result;
}

static PyMethodDef methods[] = {
    {"index_chunk", py_index_chunk, METH_VARARGS, index_chunk_doc},
    {"index_records", py_index_records, METH_VARARGS, index_records_doc},
    {"filter_chunk", py_filter_chunk, METH_VARARGS, filter_chunk_doc},
    {"filter_records", py_filter_records, METH_VARARGS, filter_records_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "_compact", "What the cleaner keeps, natively.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__compact(void)
{
    choose_crc();
    return PyModuleDef_Init(&module_definition);
}
