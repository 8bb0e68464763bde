/* Record batches to the memory of Arrow columns and back, in C99 and the stable ABI.
 *
 * A Collector takes batches in and gives its columns away at the end; an Encoder takes columns in and gives batches
 * away as they fill. No Python object is made for a record, and the GIL is free during a walk. What walks is in
 * _collect.h and _encode.h; this file is their Python side. Without it, fallback.py does the work.
 */
#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "_collect.h"
#include "_encode.h"

/* ---- the collector ---- */

typedef struct {
    PyObject_HEAD
    int is_busy;
    columns_t columns;
} collector_t;

static PyObject *collector_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    int with_headers;
    long long max_bytes;
    (void)keywords;
    if (!PyArg_ParseTuple(args, "pL:Collector", &with_headers, &max_bytes))
        return NULL;
    collector_t *collector = (collector_t *)PyType_GenericAlloc(type, 0);
    if (collector == NULL)
        return NULL;
    collector->columns.with_headers = with_headers;
    collector->columns.max_bytes = max_bytes < INT32_MAX ? max_bytes : INT32_MAX;
    return (PyObject *)collector;
}

static void drop_strings(strings_t *strings)
{
    drop(&strings->offsets);
    drop(&strings->data);
    drop(&strings->valid);
}

static void collector_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    columns_t *columns = &((collector_t *)self)->columns;
    drop_strings(&columns->key);
    drop_strings(&columns->value);
    drop_strings(&columns->header_key);
    drop_strings(&columns->header_value);
    drop(&columns->offset);
    drop(&columns->timestamp);
    drop(&columns->timestamp_type);
    drop(&columns->list_offsets);
    drop(&columns->list_valid);
    PyObject_Free(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(walk_doc, "walk(buffer, position, first, stop, next_offset, has_transactions) -> "
                       "(step, position, next_offset, reason, index)");

static PyObject *collector_walk(PyObject *self, PyObject *args)
{
    collector_t *collector = (collector_t *)self;
    columns_t *columns = &collector->columns;
    Py_buffer view;
    long long first, stop, next_offset;
    walk_t walk = {0};
    int step;
    if (!PyArg_ParseTuple(args, "y*nLLLp:walk", &view, &walk.position, &first, &stop, &next_offset,
                          &walk.has_transactions))
        return NULL;
    walk.range = (range_t){.first = first, .stop = stop, .index = -1};
    walk.next_offset = next_offset;
    walk.end = view.len;
    if (walk.position < 0 || walk.position > walk.end)
        PyErr_SetString(PyExc_ValueError, "position outside the buffer");
    if (PyErr_Occurred() || begin(&collector->is_busy) < 0) {
        PyBuffer_Release(&view);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    step = walk_batches(columns, view.buf, &walk);
    Py_END_ALLOW_THREADS
    collector->is_busy = 0;
    PyBuffer_Release(&view);
    if (step == NO_MEMORY)
        return PyErr_NoMemory();
    return Py_BuildValue("(inLii)", step, walk.position, (long long)walk.next_offset, walk.reason,
                         (int)walk.range.index);
}

PyDoc_STRVAR(records_doc, "records(payload, base_offset, last_offset, base_timestamp, max_timestamp, attributes, count, "
                          "first, stop) -> (step, reason, index)");

static PyObject *collector_records(PyObject *self, PyObject *args)
{
    collector_t *collector = (collector_t *)self;
    columns_t *columns = &collector->columns;
    Py_buffer view;
    long long numbers[4], first, stop;
    batch_t batch = {0};
    int count, attributes, step, reason = WHOLE;
    if (!PyArg_ParseTuple(args, "y*LLLLiiLL:records", &view, &numbers[0], &numbers[1], &numbers[2], &numbers[3],
                          &attributes, &count, &first, &stop))
        return NULL;
    batch.base_offset = numbers[0];
    batch.last_offset = numbers[1];
    batch.base_timestamp = numbers[2];
    batch.max_timestamp = numbers[3];
    batch.attributes = (int16_t)attributes;
    batch.count = count;
    range_t range = {.first = first, .stop = stop, .index = -1};
    if (batch.base_offset < 0 || batch.last_offset < batch.base_offset || view.len > INT32_MAX)
        PyErr_SetString(PyExc_ValueError, "offsets go back, or the payload is too long");
    if (PyErr_Occurred() || begin(&collector->is_busy) < 0) {
        PyBuffer_Release(&view);
        return NULL;
    }
    const uint8_t *data = view.buf;
    Py_ssize_t size = view.len;
    step = is_full(columns, size) ? FULL : FOUND;
    if (step == FOUND) {
        Py_BEGIN_ALLOW_THREADS
        reason = take_records(columns, data, data + size, &batch, &range);
        Py_END_ALLOW_THREADS
        step = reason == WHOLE ? FOUND : STEP_RECORD;
    }
    collector->is_busy = 0;
    PyBuffer_Release(&view);
    if (reason == NO_MEMORY)
        return PyErr_NoMemory();
    return Py_BuildValue("(iii)", step, reason, (int)range.index);
}

/* (null count, valid, offsets, data) */
static PyObject *give_strings(PyTypeObject *type, strings_t *strings)
{
    return Py_BuildValue("(LNNN)", (long long)strings->null_count, memory_of(type, &strings->valid),
                         memory_of(type, &strings->offsets), memory_of(type, &strings->data));
}

PyDoc_STRVAR(finish_doc, "finish() -> (rows, key, value, offset, timestamp, timestamp_type, headers): the columns' memory, "
                         "once. key and value are (null_count, valid, offsets, data); headers is None or (null_count, "
                         "valid, offsets, count, key, value, has_bad_utf8).");

static PyObject *collector_finish(PyObject *self, PyObject *ignored)
{
    collector_t *collector = (collector_t *)self;
    columns_t *columns = &collector->columns;
    PyObject *headers;
    (void)ignored;
    state_t *state = PyType_GetModuleState(Py_TYPE(self));
    if (state == NULL || begin(&collector->is_busy) < 0)
        return NULL;
    PyTypeObject *type = state->memory_type;
    if (reserve_batch(columns, 0, 0) < 0) {
        collector->is_busy = 0;
        return PyErr_NoMemory();
    }
    if (columns->with_headers)
        headers = Py_BuildValue("(LNNLNNi)", (long long)columns->without_headers, memory_of(type, &columns->list_valid),
                                memory_of(type, &columns->list_offsets), (long long)columns->header_count,
                                give_strings(type, &columns->header_key), give_strings(type, &columns->header_value),
                                columns->has_bad_utf8);
    else
        headers = Py_NewRef(Py_None);
    PyObject *result = Py_BuildValue(
        "(LNNNNNN)", (long long)columns->rows, give_strings(type, &columns->key), give_strings(type, &columns->value),
        memory_of(type, &columns->offset), memory_of(type, &columns->timestamp),
        memory_of(type, &columns->timestamp_type), headers);
    columns->rows = columns->header_count = columns->without_headers = columns->used_bytes = 0;
    columns->key.null_count = columns->value.null_count = columns->header_value.null_count = 0;
    columns->has_bad_utf8 = 0;
    collector->is_busy = 0;
    return result;
}

static PyMethodDef collector_methods[] = {
    {"walk", collector_walk, METH_VARARGS, walk_doc},
    {"records", collector_records, METH_VARARGS, records_doc},
    {"finish", collector_finish, METH_NOARGS, finish_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot collector_slots[] = {
    {Py_tp_new, (void *)collector_new},
    {Py_tp_dealloc, (void *)collector_free},
    {Py_tp_methods, collector_methods},
    {0, NULL},
};

static PyType_Spec collector_spec = {"barnabas.client.arrow._columns.Collector", sizeof(collector_t), 0, Py_TPFLAGS_DEFAULT,
                                     collector_slots};

/* ---- the encoder ---- */

typedef struct {
    PyObject_HEAD
    int is_busy;
    encoder_t encoder;
} encoder_object_t;

static PyObject *encoder_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    int partition_count, sticky;
    long long max_batch_bytes;
    (void)keywords;
    if (!PyArg_ParseTuple(args, "iiL:Encoder", &partition_count, &sticky, &max_batch_bytes))
        return NULL;
    if (partition_count < 1 || sticky < 0 || sticky >= partition_count || max_batch_bytes < 1 ||
        max_batch_bytes > INT32_MAX / 2) {
        PyErr_SetString(PyExc_ValueError, "partitions or size out of range");
        return NULL;
    }
    encoder_object_t *self = (encoder_object_t *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->encoder.open = calloc((size_t)partition_count, sizeof(open_t));
    if (self->encoder.open == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    self->encoder.partition_count = partition_count;
    self->encoder.sticky = sticky;
    self->encoder.max_batch_bytes = max_batch_bytes;
    return (PyObject *)self;
}

static void drop_sealed(encoder_t *encoder)
{
    for (size_t at = 0; at < encoder->sealed.size; at += sizeof(open_t))
        drop(&((open_t *)(void *)(encoder->sealed.data + at))->bytes);
    drop(&encoder->sealed);
}

static void encoder_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    encoder_t *encoder = &((encoder_object_t *)self)->encoder;
    drop_sealed(encoder);
    for (int32_t i = 0; encoder->open != NULL && i < encoder->partition_count; i++)
        drop(&encoder->open[i].bytes);
    free(encoder->open);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* [(partition, count, bytes)]: what is sealed, once. */
static PyObject *give_sealed(PyObject *self)
{
    encoder_t *encoder = &((encoder_object_t *)self)->encoder;
    state_t *state = PyType_GetModuleState(Py_TYPE(self));
    PyObject *list = state == NULL ? NULL : PyList_New(0);
    for (size_t at = 0; list != NULL && at < encoder->sealed.size; at += sizeof(open_t)) {
        open_t *batch = (open_t *)(void *)(encoder->sealed.data + at);
        PyObject *bytes = memory_of(state->memory_type, &batch->bytes);
        if (bytes != NULL)
            ((memory_t *)bytes)->is_writable = 1;
        PyObject *item = Py_BuildValue("(iiN)", (int)batch->partition, (int)batch->count, bytes);
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    drop_sealed(encoder);
    return list;
}

#define COLUMN_VIEWS 3

typedef struct {
    Py_buffer views[7 * COLUMN_VIEWS];
    int count;
} views_t;

static const uint8_t *take_view(views_t *views, PyObject *object, Py_ssize_t least, int64_t *size)
{
    Py_buffer *view = &views->views[views->count];
    if (PyObject_GetBuffer(object, view, PyBUF_SIMPLE) < 0)
        return NULL;
    views->count++;
    if (view->len < least) {
        PyErr_SetString(PyExc_ValueError, "a column's memory is too short");
        return NULL;
    }
    if (size != NULL)
        *size = view->len;
    return view->buf;
}

/* None, or (valid or None, numbers, data or None, start, count). Width is of the numbers, extra how many more. */
static int take_column(views_t *views, PyObject *given, int width, int extra, column_t *column)
{
    PyObject *valid, *numbers, *data;
    long long start, count;
    if (given == Py_None)
        return 0;
    if (!PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "a column is None or a tuple");
        return -1;
    }
    if (!PyArg_ParseTuple(given, "OOOLL", &valid, &numbers, &data, &start, &count))
        return -1;
    if (start < 0 || count < 0 || start > INT32_MAX || count > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a column's rows are out of range");
        return -1;
    }
    column->start = start;
    column->count = count;
    column->is_given = 1;
    column->data = (const uint8_t *)"";
    if (valid != Py_None && (column->valid = take_view(views, valid, (start + count + 7) / 8, NULL)) == NULL)
        return -1;
    if ((column->numbers = take_view(views, numbers, (start + count + extra) * width, NULL)) == NULL)
        return -1;
    if (data != Py_None && (column->data = take_view(views, data, 0, &column->data_size)) == NULL)
        return -1;
    return 0;
}

static int take_table(views_t *views, PyObject *const *given, table_t *table)
{
    if (take_column(views, given[0], 4, 1, &table->key) < 0 || take_column(views, given[1], 4, 1, &table->value) < 0 ||
        take_column(views, given[2], 8, 0, &table->timestamp) < 0 ||
        take_column(views, given[3], 4, 0, &table->partition) < 0 ||
        take_column(views, given[4], 4, 1, &table->headers) < 0 ||
        take_column(views, given[5], 4, 1, &table->header_key) < 0 ||
        take_column(views, given[6], 4, 1, &table->header_value) < 0)
        return -1;
    const column_t *columns[] = {&table->key, &table->value, &table->timestamp, &table->partition, &table->headers};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        if (columns[i]->is_given && columns[i]->count < table->rows) {
            PyErr_SetString(PyExc_ValueError, "a column has too few rows");
            return -1;
        }
    return 0;
}

PyDoc_STRVAR(append_doc, "append(rows, now_ms, key, value, timestamp, partition, headers, header_key, header_value) -> "
                         "(refusal, row, sealed, open_bytes). A column is None or (valid or None, numbers, data or None, "
                         "start, count); sealed is [(partition, record count, bytes)].");

static PyObject *encoder_append(PyObject *self, PyObject *args)
{
    encoder_object_t *object = (encoder_object_t *)self;
    views_t views = {.count = 0};
    table_t table = {0};
    PyObject *given[7], *result = NULL;
    long long rows, now_ms;
    int64_t row = 0;
    int refusal;
    if (!PyArg_ParseTuple(args, "LLOOOOOOO:append", &rows, &now_ms, &given[0], &given[1], &given[2], &given[3],
                          &given[4], &given[5], &given[6]))
        return NULL;
    table.rows = rows;
    table.now_ms = now_ms > 0 ? now_ms : 0;
    if (take_table(&views, given, &table) == 0 && begin(&object->is_busy) == 0) {
        Py_BEGIN_ALLOW_THREADS
        refusal = append_rows(&object->encoder, &table, &row);
        Py_END_ALLOW_THREADS
        object->is_busy = 0;
        if (refusal == NO_ROOM)
            PyErr_NoMemory();
        else
            result = Py_BuildValue("(iLNL)", refusal, (long long)row, give_sealed(self),
                                   (long long)object->encoder.open_bytes);
    }
    while (views.count > 0)
        PyBuffer_Release(&views.views[--views.count]);
    return result;
}

PyDoc_STRVAR(flush_doc, "flush() -> sealed: every open batch.");

static PyObject *encoder_flush(PyObject *self, PyObject *ignored)
{
    encoder_object_t *object = (encoder_object_t *)self;
    (void)ignored;
    if (begin(&object->is_busy) < 0)
        return NULL;
    int refusal = seal_all(&object->encoder);
    object->is_busy = 0;
    return refusal == NO_ROOM ? PyErr_NoMemory() : give_sealed(self);
}

static PyMethodDef encoder_methods[] = {
    {"append", encoder_append, METH_VARARGS, append_doc},
    {"flush", encoder_flush, METH_NOARGS, flush_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot encoder_slots[] = {
    {Py_tp_new, (void *)encoder_new},
    {Py_tp_dealloc, (void *)encoder_free},
    {Py_tp_methods, encoder_methods},
    {0, NULL},
};

static PyType_Spec encoder_spec = {"barnabas.client.arrow._columns.Encoder", sizeof(encoder_object_t), 0, Py_TPFLAGS_DEFAULT,
                                   encoder_slots};

PyDoc_STRVAR(stamp_doc, "stamp(batch, attributes, producer_id, producer_epoch, base_sequence): writes them, and the "
                        "checksum.");

static PyObject *py_stamp(PyObject *module, PyObject *args)
{
    Py_buffer view;
    long long producer_id;
    int attributes, producer_epoch, base_sequence;
    (void)module;
    if (!PyArg_ParseTuple(args, "w*iLii:stamp", &view, &attributes, &producer_id, &producer_epoch, &base_sequence))
        return NULL;
    if (view.len < HEADER_SIZE) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ValueError, "no whole header");
        return NULL;
    }
    stamp(view.buf, (size_t)view.len, attributes, producer_id, producer_epoch, base_sequence);
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(keep_freed_memory_doc, "keep_freed_memory(largest, total): blocks up to the largest are served from a heap "
                                    "that gives nothing back below the total. Elsewhere than with glibc it does nothing.");

static PyObject *py_keep_freed_memory(PyObject *module, PyObject *args)
{
    int largest, total;
    (void)module;
    if (!PyArg_ParseTuple(args, "ii:keep_freed_memory", &largest, &total))
        return NULL;
#ifdef __GLIBC__
    /* In this order: to set the second alone would fix the first at its smallest. */
    if (mallopt(M_MMAP_THRESHOLD, largest))
        mallopt(M_TRIM_THRESHOLD, total);
#endif
    Py_RETURN_NONE;
}

/* ---- the module ---- */

static PyMethodDef functions[] = {
    {"stamp", py_stamp, METH_VARARGS, stamp_doc},
    {"keep_freed_memory", py_keep_freed_memory, METH_VARARGS, keep_freed_memory_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Spec memory_spec = {"barnabas.client.arrow._columns.Memory", sizeof(memory_t), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, memory_slots};

static int run_module(PyObject *module)
{
    state_t *state = PyModule_GetState(module);
    choose_crc();
    state->memory_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &memory_spec, NULL);
    if (state->memory_type == NULL)
        return -1;
    return add_type(module, &collector_spec) < 0 || add_type(module, &encoder_spec) < 0 ? -1 : 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)run_module},
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "_columns", "Record batches to the memory of Arrow columns and back.", sizeof(state_t),
    functions, module_slots, visit_state, clear_state, NULL,
};

PyMODINIT_FUNC PyInit__columns(void)
{
    return PyModuleDef_Init(&module_definition);
}
