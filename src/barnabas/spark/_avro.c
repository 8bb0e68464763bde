/* Avro records to the memory of Arrow columns and back, in C99 and the stable ABI: the Python side of _avro_decode.h and
 * _avro_encode.h. Without it, avro_fallback.py does the work.
 */
#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "_avro_decode.h"
#include "_avro_encode.h"

typedef struct {
    PyObject_HEAD
    int is_busy;
    program_t program;
} codec_t;

static void *copy_of(const Py_buffer *view)
{
    void *copy = malloc((size_t)view->len + 1);
    if (copy != NULL)
        memcpy(copy, view->buf, (size_t)view->len);
    return copy;
}

/* Children come after their parents, so that no walk goes in circles. */
static int is_sound(const program_t *program, int32_t index)
{
    const node_t *node = &program->nodes[index];
    int wanted = node->kind == K_OPTIONAL || node->kind == K_ARRAY ? 1 : node->kind == K_MAP ? 2 : -1;
    if (node->kind < 0 || node->kind >= KINDS || node->child_count < 0 || (wanted >= 0 && node->child_count != wanted))
        return 0;
    if (node->kind == K_ANY_LONG || node->kind == K_ANY_DOUBLE)
        return node->child_count == 0 && node->b >= 0 && node->b < 8;
    if (node->first_child < 0 || node->first_child > program->child_total - node->child_count)
        return 0;
    for (int32_t i = 0; i < node->child_count; i++) {
        int32_t child = program->children[node->first_child + i];
        if (child <= index || child >= program->node_count)
            return 0;
    }
    if (node->kind == K_ENUM)
        return node->a >= 0 && node->b >= 0 && node->a <= program->symbol_count - node->b;
    return node->kind != K_FIXED && node->kind != K_UUID && node->kind != K_DECIMAL_FIXED ? 1 : node->a >= 0;
}

static int set_up(program_t *program, const Py_buffer *nodes, const Py_buffer *children, const Py_buffer *ends,
                  const Py_buffer *symbols)
{
    program->node_count = (int32_t)(nodes->len / (NODE_FIELDS * 4));
    program->child_total = (int32_t)(children->len / 4);
    program->symbol_count = (int32_t)(ends->len / 4);
    program->nodes = calloc((size_t)program->node_count + 1, sizeof(node_t));
    program->children = copy_of(children);
    program->symbol_ends = copy_of(ends);
    program->symbols = copy_of(symbols);
    if (!program->nodes || !program->children || !program->symbol_ends || !program->symbols)
        return PyErr_NoMemory() != NULL;
    for (int32_t i = 0; i < program->node_count; i++) {
        node_t *node = &program->nodes[i];
        memcpy(node, (const uint8_t *)nodes->buf + (size_t)i * NODE_FIELDS * 4, NODE_FIELDS * 4);
        for (int digit = 0; digit < node->b && digit < 38; digit++) {
            uint64_t low = (node->bound_low & 0xFFFFFFFFu) * 10 + 9;
            uint64_t high = (node->bound_low >> 32) * 10 + (low >> 32);
            node->bound_low = high << 32 | (low & 0xFFFFFFFFu);
            node->bound_high = node->bound_high * 10 + (high >> 32);
        }
    }
    int is_right = program->node_count > 0;
    for (int32_t i = 0; is_right && i < program->node_count; i++)
        is_right = is_sound(program, i);
    for (int32_t i = 0; is_right && i < program->symbol_count; i++)
        is_right = program->symbol_ends[i] >= (i ? program->symbol_ends[i - 1] : 0) &&
                   program->symbol_ends[i] <= symbols->len;
    if (!is_right)
        PyErr_SetString(PyExc_ValueError, "not a compiled schema");
    return is_right;
}

static PyObject *codec_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    Py_buffer nodes, children, ends, symbols;
    (void)keywords;
    if (!PyArg_ParseTuple(args, "y*y*y*y*:Codec", &nodes, &children, &ends, &symbols))
        return NULL;
    codec_t *self = (codec_t *)PyType_GenericAlloc(type, 0);
    if (self != NULL && !set_up(&self->program, &nodes, &children, &ends, &symbols))
        Py_CLEAR(self);
    PyBuffer_Release(&nodes);
    PyBuffer_Release(&children);
    PyBuffer_Release(&ends);
    PyBuffer_Release(&symbols);
    return (PyObject *)self;
}

static void codec_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    program_t *program = &((codec_t *)self)->program;
    for (int32_t i = 0; program->nodes != NULL && i < program->node_count; i++) {
        drop(&program->nodes[i].valid);
        drop(&program->nodes[i].offsets);
        drop(&program->nodes[i].data);
    }
    drop(&program->faults);
    free(program->nodes);
    free(program->children);
    free(program->symbol_ends);
    free(program->symbols);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *columns_of(program_t *program, PyTypeObject *type)
{
    PyObject *list = PyList_New(0);
    for (int32_t i = 0; list != NULL && i < program->node_count; i++) {
        node_t *node = &program->nodes[i];
        PyObject *item = Py_BuildValue("(LLNNN)", (long long)node->count, (long long)node->null_count,
                                       memory_of(type, &node->valid), memory_of(type, &node->offsets),
                                       memory_of(type, &node->data));
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *faults_of(const vector_t *faults)
{
    PyObject *list = PyList_New(0);
    for (size_t at = 0; list != NULL && at < faults->size; at += sizeof(fault_t)) {
        fault_t fault;
        memcpy(&fault, faults->data + at, sizeof fault);
        PyObject *item = Py_BuildValue("(Liii)", (long long)fault.row, (int)fault.reason, (int)fault.node,
                                       (int)fault.position);
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

PyDoc_STRVAR(decode_doc, "decode(rows, start, valid or None, offsets, data, is_confluent, stops_at_fault) -> (columns, "
                         "faults): by node (count, null_count, valid, offsets, data); (row, reason, node, position).");

static PyObject *decode_views(codec_t *self, input_t *input, const Py_buffer *views)
{
    input->offsets = views[1].buf;
    input->data = views[2].buf;
    input->data_size = views[2].len;
    if (input->rows < 0 || input->start < 0 || input->rows > INT32_MAX - 1 || input->start > INT32_MAX ||
        views[1].len / 4 < input->start + input->rows + 1 ||
        (input->valid != NULL && views[0].len < (input->start + input->rows + 7) / 8)) {
        PyErr_SetString(PyExc_ValueError, "a column's memory is too short");
        return NULL;
    }
    if (begin(&self->is_busy) < 0)
        return NULL;
    int reason;
    Py_BEGIN_ALLOW_THREADS
    reason = begin_columns(&self->program) < 0 ? NO_MEMORY : take_rows(&self->program, input);
    Py_END_ALLOW_THREADS
    self->is_busy = 0;
    if (reason == NO_MEMORY)
        return PyErr_NoMemory();
    if (reason != FINE) {
        PyErr_SetString(PyExc_ValueError, "a column's memory is damaged");
        return NULL;
    }
    state_t *state = PyType_GetModuleState(Py_TYPE((PyObject *)self));
    if (state == NULL)
        return NULL;
    return Py_BuildValue("(NN)", columns_of(&self->program, state->memory_type), faults_of(&self->program.faults));
}

static PyObject *codec_decode(PyObject *self, PyObject *args)
{
    input_t input = {0};
    Py_buffer views[3];
    long long rows, start;
    if (!PyArg_ParseTuple(args, "LLz*y*y*pp:decode", &rows, &start, &views[0], &views[1], &views[2],
                          &input.is_confluent, &input.stops_at_fault))
        return NULL;
    input.rows = rows;
    input.start = start;
    input.valid = views[0].buf;
    PyObject *result = decode_views((codec_t *)self, &input, views);
    for (int i = 0; i < 3; i++)
        PyBuffer_Release(&views[i]);
    return result;
}

PyDoc_STRVAR(encode_doc, "encode(rows, columns, prefix) -> (null_count, valid, offsets, data, faults). By node, a column is None "
                         "or (valid or None, numbers or None, data or None, start, count).");

/* One view of a column's memory; 0 where there is none or all is right. */
static int take_view(Py_buffer *views, int *count, PyObject *object, int64_t least, const uint8_t **data, int64_t *size)
{
    if (object == Py_None) {
        *data = NULL;
        *size = 0;
    } else {
        if (PyObject_GetBuffer(object, &views[*count], PyBUF_SIMPLE) < 0)
            return -1;
        *data = views[*count].buf;
        *size = views[*count].len;
        ++*count;
    }
    if (*size >= least)
        return 0;
    PyErr_SetString(PyExc_ValueError, "a column's memory is too short");
    return -1;
}

static int take_source(const node_t *node, PyObject *given, Py_buffer *views, int *count, source_t *source)
{
    PyObject *valid, *numbers, *data;
    long long start, rows;
    int64_t ignored;
    if (given == Py_None && (node->kind == K_OPTIONAL || node->kind == K_NULL)) {
        source->count = INT32_MAX; /* of nothing there is enough */
        return 0;
    }
    if (given == NULL || !PyTuple_Check(given) ||
        !PyArg_ParseTuple(given, "OOOLL", &valid, &numbers, &data, &start, &rows)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a column is a tuple");
        return -1;
    }
    if (start < 0 || rows < 0 || start > INT32_MAX || rows > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a column's rows are out of range");
        return -1;
    }
    source->start = start;
    source->count = rows;
    if (take_view(views, count, valid, valid == Py_None ? 0 : (start + rows + 7) / 8, &source->valid, &ignored) < 0 ||
        take_view(views, count, numbers, numbers_of(node, start + rows), &source->numbers, &source->numbers_size) < 0)
        return -1;
    return take_view(views, count, data, 0, &source->data, &source->data_size);
}

/* Fields have as many rows as their record; items are counted where they are used. */
static int has_all_rows(const program_t *program, const source_t *sources, const node_t *node, int64_t rows)
{
    if (node->kind != K_OPTIONAL && sources[node - program->nodes].count < rows)
        return 0;
    int64_t inner = sources[node - program->nodes].count;
    for (int32_t i = 0; i < node->child_count; i++) {
        const node_t *child = child_of(program, node, i);
        int is_item = node->kind == K_ARRAY || node->kind == K_MAP;
        const node_t *held = child->kind == K_OPTIONAL ? child_of(program, child, 0) : child;
        int64_t wanted = is_item ? sources[held - program->nodes].count : node->kind == K_OPTIONAL ? rows : inner;
        if (!has_all_rows(program, sources, child, wanted))
            return 0;
    }
    return 1;
}

static PyObject *encode_sources(codec_t *self, const source_t *sources, int64_t rows, const Py_buffer *prefix)
{
    writer_t writer = {.program = &self->program, .sources = sources, .prefix = prefix->buf,
                       .prefix_size = (size_t)prefix->len};
    state_t *state = PyType_GetModuleState(Py_TYPE((PyObject *)self));
    PyObject *result = NULL;
    int reason;
    Py_BEGIN_ALLOW_THREADS
    reason = write_rows(&writer, rows);
    Py_END_ALLOW_THREADS
    if (reason == NO_MEMORY || state == NULL)
        PyErr_NoMemory();
    else
        result = Py_BuildValue("(LNNNN)", (long long)writer.null_count, memory_of(state->memory_type, &writer.valid),
                               memory_of(state->memory_type, &writer.offsets),
                               memory_of(state->memory_type, &writer.out), faults_of(&writer.faults));
    drop(&writer.valid);
    drop(&writer.offsets);
    drop(&writer.out);
    drop(&writer.faults);
    return result;
}

static PyObject *codec_encode(PyObject *self, PyObject *args)
{
    const program_t *program = &((codec_t *)self)->program;
    PyObject *columns, *result = NULL;
    Py_buffer prefix;
    long long rows;
    int count = 0;
    if (!PyArg_ParseTuple(args, "LO!y*:encode", &rows, &PyList_Type, &columns, &prefix))
        return NULL;
    if (PyList_Size(columns) != program->node_count || rows < 0 || rows > INT32_MAX - 1) {
        PyErr_SetString(PyExc_ValueError, "a column for every node is right");
        PyBuffer_Release(&prefix);
        return NULL;
    }
    source_t *sources = calloc((size_t)program->node_count, sizeof *sources);
    Py_buffer *views = calloc((size_t)program->node_count * 3, sizeof *views);
    int is_right = sources != NULL && views != NULL;
    if (!is_right)
        PyErr_NoMemory();
    for (int32_t i = 0; is_right && i < program->node_count; i++)
        is_right = take_source(&program->nodes[i], PyList_GetItem(columns, i), views, &count, &sources[i]) == 0;
    if (is_right && !has_all_rows(program, sources, program->nodes, rows))
        PyErr_SetString(PyExc_ValueError, "a column has too few rows");
    else if (is_right)
        result = encode_sources((codec_t *)self, sources, rows, &prefix);
    while (count > 0)
        PyBuffer_Release(&views[--count]);
    free(views);
    free(sources);
    PyBuffer_Release(&prefix);
    return result;
}

static PyMethodDef codec_methods[] = {
    {"decode", codec_decode, METH_VARARGS, decode_doc},
    {"encode", codec_encode, METH_VARARGS, encode_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot codec_slots[] = {
    {Py_tp_new, (void *)codec_new},
    {Py_tp_dealloc, (void *)codec_free},
    {Py_tp_methods, codec_methods},
    {0, NULL},
};

static PyType_Spec codec_spec = {"barnabas.spark._avro.Codec", sizeof(codec_t), 0, Py_TPFLAGS_DEFAULT,
                                   codec_slots};
static PyType_Spec memory_spec = {"barnabas.spark._avro.Memory", sizeof(memory_t), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, memory_slots};

static int run_module(PyObject *module)
{
    state_t *state = PyModule_GetState(module);
    (void)choose_crc; /* of _bytes.h; nothing here has a checksum */
    state->memory_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &memory_spec, NULL);
    return state->memory_type == NULL ? -1 : add_type(module, &codec_spec);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)run_module},
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "_avro", "Avro records to the memory of Arrow columns and back.", sizeof(state_t), NULL,
    module_slots, visit_state, clear_state, NULL,
};

PyMODINIT_FUNC PyInit__avro(void)
{
    return PyModuleDef_Init(&module_definition);
}
