/* The native twin of barnabas.wire.walk: the same walks over record batches, in C99 and the stable ABI.
 *
 * Three rules keep it safe on what strangers send:
 * - A size is read once into a local, compared with what is left, and only then used. The buffer may belong to a
 *   bytearray that another thread writes while the GIL is released, so nothing is read twice and trusted.
 * - Arithmetic on what was read is done on unsigned values or after a range check; nothing signed overflows.
 * - Results are collected without Python objects, so that the GIL can be let go during a long walk.
 *
 * The functions return plain tuples and reason numbers; names, texts and exceptions are the Python side's. Change
 * an order of checks here and the twin must follow: tests hold reason and index equal on mutated batches.
 */
#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "_bytes.h"

#define BATCH_FIELDS 10
#define ENTRY_FIELDS 4
#define EPOCH_FIELDS 2

/* ---- the walk over records ---- */

/* The numbers are walk.py's Reason. */
enum { WHOLE, BAD_VARINT, BAD_LENGTH, BAD_FIELDS, BAD_OFFSET, BAD_KEY, BAD_VALUE, BAD_HEADER_COUNT, BAD_HEADER,
       BAD_TIMESTAMP, TRAILING };

typedef struct {
    int64_t max_timestamp;
    int64_t min_timestamp;
    int32_t offset_of_max;
    int has_null_key;
    int32_t index;
} summary_t;

/* One nullable field within its record: past it, or null with the reason set. */
static inline const uint8_t *skip_field(const uint8_t *at, const uint8_t *end, int bad, int smallest, int *reason,
                                        int32_t *length)
{
    at = read_varint(at, end, length);
    if (at == NULL) {
        *reason = BAD_VARINT;
        return NULL;
    }
    if (*length < smallest || *length > end - at) {
        *reason = bad;
        return NULL;
    }
    return *length > 0 ? at + *length : at;
}

static int skip_headers(const uint8_t **position, const uint8_t *end)
{
    const uint8_t *at = *position;
    int32_t count, length;
    int reason = WHOLE;
    if ((at = read_varint(at, end, &count)) == NULL)
        return BAD_VARINT;
    if (count < 0 || count > end - at)
        return BAD_HEADER_COUNT;
    for (; count > 0; count--) {
        if ((at = skip_field(at, end, BAD_HEADER, 0, &reason, &length)) == NULL)
            return reason;
        if ((at = skip_field(at, end, BAD_HEADER, -1, &reason, &length)) == NULL)
            return reason;
    }
    *position = at;
    return WHOLE;
}

/* The body of one record, from its attributes to its end. */
static inline int walk_record(const uint8_t *at, const uint8_t *end, int32_t index, int64_t base_timestamp,
                              summary_t *summary)
{
    int64_t timestamp_delta, timestamp;
    int32_t offset_delta, length;
    int reason = WHOLE;
    if (at >= end)
        return BAD_FIELDS;
    at++;
    if ((at = read_varlong(at, end, &timestamp_delta)) == NULL || (at = read_varint(at, end, &offset_delta)) == NULL)
        return BAD_VARINT;
    if (offset_delta != index)
        return BAD_OFFSET;
    if ((at = skip_field(at, end, BAD_KEY, -1, &reason, &length)) == NULL)
        return reason;
    summary->has_null_key |= length < 0;
    if ((at = skip_field(at, end, BAD_VALUE, -1, &reason, &length)) == NULL)
        return reason;
    if ((reason = skip_headers(&at, end)) != WHOLE)
        return reason;
    if (at != end)
        return BAD_FIELDS;
    if (timestamp_delta > 0 ? base_timestamp > INT64_MAX - timestamp_delta
                            : base_timestamp < INT64_MIN - timestamp_delta)
        return BAD_TIMESTAMP;
    timestamp = base_timestamp + timestamp_delta;
    if (timestamp > summary->max_timestamp) {
        summary->max_timestamp = timestamp;
        summary->offset_of_max = index;
    }
    if (timestamp != -1 && (summary->min_timestamp == -1 || timestamp < summary->min_timestamp))
        summary->min_timestamp = timestamp;
    return WHOLE;
}

static int walk_records(const uint8_t *at, const uint8_t *end, int32_t count, int64_t base_timestamp,
                        summary_t *summary)
{
    *summary = (summary_t){.max_timestamp = -1, .min_timestamp = -1, .offset_of_max = -1};
    for (int32_t index = 0; index < count; index++) {
        int32_t length;
        summary->index = index;
        if ((at = read_varint(at, end, &length)) == NULL)
            return BAD_VARINT;
        if (length < 0 || length > end - at)
            return BAD_LENGTH;
        int reason = walk_record(at, at + length, index, base_timestamp, summary);
        if (reason != WHOLE)
            return reason;
        at += length;
    }
    summary->index = count;
    return at == end ? WHOLE : TRAILING;
}

/* ---- the scan over batches ---- */

/* The numbers are walk.py's Stop. FOUND is inside only. */
enum { FOUND = -1, AT_END, PARTIAL, STOP_LENGTH, STOP_MAGIC, STOP_HEADER, STOP_CRC, STOP_OFFSET };

typedef struct {
    int64_t base_offset, last_offset, max_timestamp, producer_id;
    int32_t leader_epoch, base_sequence, record_count;
    int16_t attributes, producer_epoch;
    Py_ssize_t size;
} batch_t;

typedef struct {
    int64_t *items;
    size_t count, room;
} numbers_t;

/* Room for so many more numbers, or null. */
static int64_t *grow(numbers_t *numbers, size_t more)
{
    if (numbers->room - numbers->count < more) {
        size_t room = numbers->room ? numbers->room * 2 : 1024;
        int64_t *items = realloc(numbers->items, room * sizeof *items);
        if (items == NULL)
            return NULL;
        numbers->items = items;
        numbers->room = room;
    }
    int64_t *at = numbers->items + numbers->count;
    numbers->count += more;
    return at;
}

static int read_batch(const uint8_t *at, Py_ssize_t left, int check_crc, batch_t *batch)
{
    if (left == 0)
        return AT_END;
    batch->size = HEADER_SIZE;
    if (left < HEADER_SIZE)
        return PARTIAL;
    int32_t length = read_i32(at + 8);
    if (length < HEADER_SIZE - LOG_OVERHEAD)
        return STOP_LENGTH;
    if (at[16] != 2)
        return STOP_MAGIC;
    batch->size = (Py_ssize_t)length + LOG_OVERHEAD;
    if (left < batch->size)
        return PARTIAL;
    if (check_crc && crc32c(at + 21, (size_t)batch->size - 21) != read_u32(at + 17))
        return STOP_CRC;
    int32_t last_offset_delta = read_i32(at + 23);
    batch->base_offset = read_i64(at);
    batch->leader_epoch = read_i32(at + 12);
    batch->attributes = read_i16(at + 21);
    batch->max_timestamp = read_i64(at + 35);
    batch->producer_id = read_i64(at + 43);
    batch->producer_epoch = read_i16(at + 51);
    batch->base_sequence = read_i32(at + 53);
    batch->record_count = read_i32(at + 57);
    if (batch->base_offset < 0 || last_offset_delta < 0 || batch->record_count < 0 ||
        batch->base_offset > INT64_MAX - last_offset_delta)
        return STOP_HEADER;
    batch->last_offset = batch->base_offset + last_offset_delta;
    return FOUND;
}

static int keep_batch(numbers_t *kept, int64_t position, const batch_t *batch)
{
    int64_t *at = grow(kept, BATCH_FIELDS);
    if (at == NULL)
        return -1;
    at[0] = position;
    at[1] = batch->base_offset;
    at[2] = batch->last_offset;
    at[3] = batch->max_timestamp;
    at[4] = batch->leader_epoch;
    at[5] = batch->producer_id;
    at[6] = batch->producer_epoch;
    at[7] = batch->base_sequence;
    at[8] = batch->record_count;
    at[9] = batch->attributes;
    return 0;
}

typedef struct {
    /* asked */
    int64_t file_position, interval_bytes, max_offset;
    int check_crc;
    /* carried from one buffer to the next */
    int64_t next_offset, bytes_since_entry, max_timestamp, offset_of_max, leader_epoch;
    /* found */
    numbers_t entries, epochs, producers;
    Py_ssize_t needed;
} index_t;

/* What Kafka's LogSegment.recover does for one batch; -1 when memory ends. */
static int index_batch(index_t *index, int64_t position, const batch_t *batch)
{
    int64_t *at;
    if (batch->max_timestamp > index->max_timestamp) {
        index->max_timestamp = batch->max_timestamp;
        index->offset_of_max = batch->last_offset;
    }
    if (index->bytes_since_entry > index->interval_bytes) {
        if ((at = grow(&index->entries, ENTRY_FIELDS)) == NULL)
            return -1;
        at[0] = batch->last_offset;
        at[1] = position;
        at[2] = index->max_timestamp;
        at[3] = index->offset_of_max;
        index->bytes_since_entry = 0;
    }
    if (batch->leader_epoch > index->leader_epoch) {
        if ((at = grow(&index->epochs, EPOCH_FIELDS)) == NULL)
            return -1;
        at[0] = index->leader_epoch = batch->leader_epoch;
        at[1] = batch->base_offset;
    }
    if ((batch->producer_id >= 0 || batch->attributes & 0x20) && keep_batch(&index->producers, position, batch) < 0)
        return -1;
    index->bytes_since_entry += batch->size;
    index->next_offset = batch->last_offset + 1;
    return 0;
}

/* Where it stopped is left in *stop. Returns a stop reason, or -1 when memory ends. */
static int run_index(const uint8_t *data, Py_ssize_t start, Py_ssize_t end, index_t *index, Py_ssize_t *stop)
{
    batch_t batch;
    Py_ssize_t at = start;
    int reason;
    while ((reason = read_batch(data + at, end - at, index->check_crc, &batch)) == FOUND) {
        if (batch.base_offset < index->next_offset || batch.last_offset > index->max_offset) {
            reason = STOP_OFFSET;
            break;
        }
        if (index_batch(index, index->file_position + (at - start), &batch) < 0)
            return -1;
        at += batch.size;
    }
    index->needed = reason == PARTIAL ? batch.size : 0;
    *stop = at;
    return reason;
}

/* ---- Python ---- */

static PyObject *batch_tuple(const int64_t *fields)
{
    PyObject *tuple = PyTuple_New(BATCH_FIELDS);
    for (Py_ssize_t i = 0; tuple != NULL && i < BATCH_FIELDS; i++) {
        PyObject *number = PyLong_FromLongLong(fields[i]);
        if (number == NULL || PyTuple_SetItem(tuple, i, number) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *batch_list(const numbers_t *numbers)
{
    Py_ssize_t count = (Py_ssize_t)(numbers->count / BATCH_FIELDS);
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        PyObject *tuple = batch_tuple(numbers->items + i * BATCH_FIELDS);
        if (tuple == NULL || PyList_SetItem(list, i, tuple) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* Native int64s, for array('q').frombytes. */
static PyObject *number_bytes(const numbers_t *numbers)
{
    return PyBytes_FromStringAndSize((const char *)numbers->items, (Py_ssize_t)(numbers->count * sizeof(int64_t)));
}

static int check_range(const Py_buffer *view, Py_ssize_t start, Py_ssize_t end)
{
    if (start >= 0 && start <= end && end <= view->len)
        return 0;
    PyErr_SetString(PyExc_ValueError, "range outside the buffer");
    return -1;
}

PyDoc_STRVAR(walk_doc, "walk(buffer, start, end, count, base_timestamp) -> "
                       "(reason, index, max_timestamp, offset_of_max, min_timestamp, has_null_key)");

static PyObject *py_walk(PyObject *module, PyObject *args)
{
    Py_buffer view;
    Py_ssize_t start, end;
    int count, reason;
    long long base_timestamp;
    summary_t summary;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*nniL:walk", &view, &start, &end, &count, &base_timestamp))
        return NULL;
    if (check_range(&view, start, end) < 0) {
        PyBuffer_Release(&view);
        return NULL;
    }
    const uint8_t *data = view.buf;
    if (end - start > RELEASE_GIL_BYTES) {
        Py_BEGIN_ALLOW_THREADS
        reason = walk_records(data + start, data + end, count, base_timestamp, &summary);
        Py_END_ALLOW_THREADS
    } else {
        reason = walk_records(data + start, data + end, count, base_timestamp, &summary);
    }
    PyBuffer_Release(&view);
    return Py_BuildValue("(iiLiLO)", reason, (int)summary.index, (long long)summary.max_timestamp,
                         (int)summary.offset_of_max, (long long)summary.min_timestamp,
                         summary.has_null_key ? Py_True : Py_False);
}

PyDoc_STRVAR(index_scan_doc,
             "index_scan(buffer, start, end, check_crc, file_position, interval_bytes, max_offset, next_offset, "
             "bytes_since_entry, max_timestamp, offset_of_max, leader_epoch) -> (stop, reason, needed, next_offset, "
             "bytes_since_entry, max_timestamp, offset_of_max, leader_epoch, entries, epochs, producers)");

static PyObject *index_result(const index_t *index, Py_ssize_t stop, int reason)
{
    return Py_BuildValue("(ninLLLLLNNN)", stop, reason, index->needed, (long long)index->next_offset,
                         (long long)index->bytes_since_entry, (long long)index->max_timestamp,
                         (long long)index->offset_of_max, (long long)index->leader_epoch,
                         number_bytes(&index->entries), number_bytes(&index->epochs), batch_list(&index->producers));
}

static PyObject *py_index_scan(PyObject *module, PyObject *args)
{
    Py_buffer view;
    Py_ssize_t start, end, stop = 0;
    int reason;
    long long asked[8];
    index_t index = {0};
    PyObject *result = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*nnpLLLLLLLL:index_scan", &view, &start, &end, &index.check_crc, &asked[0],
                          &asked[1], &asked[2], &asked[3], &asked[4], &asked[5], &asked[6], &asked[7]))
        return NULL;
    index.file_position = asked[0];
    index.interval_bytes = asked[1];
    /* The next offset is one above a last offset, which must fit too. */
    index.max_offset = asked[2] < INT64_MAX ? asked[2] : INT64_MAX - 1;
    index.next_offset = asked[3];
    index.bytes_since_entry = asked[4];
    index.max_timestamp = asked[5];
    index.offset_of_max = asked[6];
    index.leader_epoch = asked[7];
    if (index.file_position < 0 || index.file_position > INT64_MAX / 2 || index.bytes_since_entry < 0 ||
        index.bytes_since_entry > INT64_MAX / 2) {
        PyErr_SetString(PyExc_ValueError, "position out of range");
    } else if (check_range(&view, start, end) == 0) {
        if (end - start > RELEASE_GIL_BYTES) {
            Py_BEGIN_ALLOW_THREADS
            reason = run_index(view.buf, start, end, &index, &stop);
            Py_END_ALLOW_THREADS
        } else {
            reason = run_index(view.buf, start, end, &index, &stop);
        }
        if (reason < 0)
            PyErr_NoMemory();
        else
            result = index_result(&index, stop, reason);
    }
    free(index.entries.items);
    free(index.epochs.items);
    free(index.producers.items);
    PyBuffer_Release(&view);
    return result;
}

/* ---- a produced batch in one look ---- */

#define CODECS 0x07
#define TRANSACTIONAL 0x10
#define LAST_CODEC 4

/* Whether the bytes are one batch as nearly every producer sends it, nothing about it in question. */
static int is_plain(const uint8_t *at, Py_ssize_t size, summary_t *summary)
{
    batch_t batch;
    if (read_batch(at, size, 1, &batch) != FOUND || batch.size != size || batch.base_offset != 0)
        return 0;
    if (batch.record_count <= 0 || batch.record_count - 1 != batch.last_offset)
        return 0;
    if (batch.attributes & ~(TRANSACTIONAL | CODECS) || (batch.attributes & CODECS) > LAST_CODEC)
        return 0;
    if (batch.producer_id >= 0 && batch.base_sequence < 0)
        return 0;
    int64_t base_timestamp = read_i64(at + 27);
    if (batch.attributes & CODECS) {
        *summary = (summary_t){.max_timestamp = batch.max_timestamp, .min_timestamp = base_timestamp};
        return 1;
    }
    return walk_records(at + HEADER_SIZE, at + size, batch.record_count, base_timestamp, summary) == WHOLE;
}

static PyObject *header_tuple(const uint8_t *at)
{
    return Py_BuildValue("LiiBIhiLLLhii", (long long)read_i64(at), read_i32(at + 8), read_i32(at + 12), at[16],
                         read_u32(at + 17), read_i16(at + 21), read_i32(at + 23), (long long)read_i64(at + 27),
                         (long long)read_i64(at + 35), (long long)read_i64(at + 43), read_i16(at + 51),
                         read_i32(at + 53), read_i32(at + 57));
}

PyDoc_STRVAR(inspect_doc, "inspect(buffer) -> (header's fields, max_timestamp, min_timestamp, has_null_key), or None "
                          "where the batch needs a closer look.");

static PyObject *py_inspect(PyObject *module, PyObject *buffer)
{
    Py_buffer view;
    summary_t summary;
    int plain;
    PyObject *result = NULL;
    (void)module;
    if (PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (view.len > RELEASE_GIL_BYTES) {
        Py_BEGIN_ALLOW_THREADS
        plain = is_plain(view.buf, view.len, &summary);
        Py_END_ALLOW_THREADS
    } else {
        plain = is_plain(view.buf, view.len, &summary);
    }
    if (plain) {
        PyObject *fields = header_tuple(view.buf);
        if (fields != NULL)
            result = Py_BuildValue("NLLO", fields, (long long)summary.max_timestamp, (long long)summary.min_timestamp,
                                   summary.has_null_key ? Py_True : Py_False);
    } else {
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&view);
    return result;
}

PyDoc_STRVAR(crc_doc, "crc32c(buffer, by_table=False) -> int; for the tests of this module.");

static PyObject *py_crc32c(PyObject *module, PyObject *args)
{
    Py_buffer view;
    int by_table = 0;
    uint32_t crc;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*|p:crc32c", &view, &by_table))
        return NULL;
    crc = (by_table ? crc32c_by_table : crc32c)(view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc);
}

static PyMethodDef methods[] = {
    {"walk", py_walk, METH_VARARGS, walk_doc},
    {"index_scan", py_index_scan, METH_VARARGS, index_scan_doc},
    {"inspect", py_inspect, METH_O, inspect_doc},
    {"crc32c", py_crc32c, METH_VARARGS, crc_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "_walk", "Native walks over record batches.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__walk(void)
{
    choose_crc();
    return PyModuleDef_Init(&module_definition);
}
