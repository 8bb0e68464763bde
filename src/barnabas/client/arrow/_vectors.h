/* Growing memory without Python objects, and a Python object that hands it over as a buffer without a copy. */
#ifndef BARNABAS_VECTORS_H
#define BARNABAS_VECTORS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint8_t *data;
    size_t size, room; /* bytes */
} vector_t;

/* Room for so many more bytes; -1 when memory ends. */
static inline int reserve(vector_t *vector, size_t more)
{
    if (vector->data != NULL && vector->room - vector->size >= more)
        return 0;
    if (more > SIZE_MAX / 4 || vector->size > SIZE_MAX / 4)
        return -1;
    size_t needed = vector->size + more, room = vector->room * 2;
    if (room < needed)
        room = needed;
    if (room < 64)
        room = 64;
    uint8_t *data = realloc(vector->data, room);
    if (data == NULL)
        return -1;
    vector->data = data;
    vector->room = room;
    return 0;
}

/* Zeroed bits up to so many in all; -1 when memory ends. */
static inline int reserve_bits(vector_t *bits, size_t count)
{
    size_t needed = (count + 7) / 8;
    if (needed <= bits->size)
        return 0;
    if (reserve(bits, needed - bits->size) < 0)
        return -1;
    memset(bits->data + bits->size, 0, needed - bits->size);
    bits->size = needed;
    return 0;
}

static inline void set_bit(vector_t *bits, size_t index)
{
    bits->data[index >> 3] |= (uint8_t)(1u << (index & 7));
}

static inline void put_i32(vector_t *vector, int32_t number)
{
    memcpy(vector->data + vector->size, &number, sizeof number);
    vector->size += sizeof number;
}

static inline void put_i64(vector_t *vector, int64_t number)
{
    memcpy(vector->data + vector->size, &number, sizeof number);
    vector->size += sizeof number;
}

static inline void put_bytes(vector_t *vector, const uint8_t *from, size_t size)
{
    if (size > 0)
        memcpy(vector->data + vector->size, from, size);
    vector->size += size;
}

static inline void drop(vector_t *vector)
{
    free(vector->data);
    *vector = (vector_t){0};
}

/* ---- the Python object ---- */

typedef struct {
    PyObject_HEAD
    uint8_t *data;
    Py_ssize_t size;
    int is_writable;
} memory_t;

static int memory_buffer(PyObject *self, Py_buffer *view, int flags)
{
    memory_t *memory = (memory_t *)self;
    return PyBuffer_FillInfo(view, self, memory->data, memory->size, !memory->is_writable, flags);
}

static void memory_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    free(((memory_t *)self)->data);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot memory_slots[] = {
    {Py_tp_dealloc, (void *)memory_free},
    {Py_bf_getbuffer, (void *)memory_buffer},
    {0, NULL},
};

#define WORTH_SHRINKING_BYTES (1024 * 1024)

/* Takes the vector's memory over, which leaves it empty. */
static PyObject *memory_of(PyTypeObject *type, vector_t *vector)
{
    if (reserve(vector, 1) < 0)
        return PyErr_NoMemory();
    if (vector->room - vector->size > WORTH_SHRINKING_BYTES) {
        uint8_t *smaller = realloc(vector->data, vector->size ? vector->size : 1);
        if (smaller != NULL)
            vector->data = smaller;
    }
    memory_t *memory = (memory_t *)PyType_GenericAlloc(type, 0);
    if (memory == NULL)
        return NULL;
    memory->data = vector->data;
    memory->size = (Py_ssize_t)vector->size;
    *vector = (vector_t){0};
    return (PyObject *)memory;
}

/* ---- a module whose types give memory away ---- */

typedef struct {
    PyTypeObject *memory_type;
} state_t;

static int add_type(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type == NULL)
        return -1;
    int failed = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return failed;
}

static int visit_state(PyObject *module, visitproc visit, void *arg)
{
    state_t *state = PyModule_GetState(module);
    Py_VISIT(state->memory_type);
    return 0;
}

static int clear_state(PyObject *module)
{
    state_t *state = PyModule_GetState(module);
    Py_CLEAR(state->memory_type);
    return 0;
}

/* The GIL is let go in the middle, so that a second thread must be kept out by other means. */
static int begin(int *is_busy)
{
    if (*is_busy) {
        PyErr_SetString(PyExc_RuntimeError, "another thread is at it");
        return -1;
    }
    *is_busy = 1;
    return 0;
}

#endif
