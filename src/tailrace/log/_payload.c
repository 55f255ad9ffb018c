/* The payload of a frame, from drafts in one pass: what `tailrace.log.batch` does with Arrow's builders. Optional:
   `tailrace.log.payload` calls it where it was built; docs/decisions/compiled-helper.md says when and why.
   Only the stable interface of Python 3.11 is used, so one build serves every later version.

   A draft comes as the tuple of its fields. Both functions return None for values that are not of the plain kind (a key
   that is no `bytes`, a number that does not fit): the caller then takes the other way, which says what is wrong.

   The message is Arrow's: a head, given as a template, and a body of 28 buffers, each padded to 8 bytes: validity and
   values of six columns of numbers; validity, offsets and bytes of four texts; validity and values of two columns. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the log is little-endian, and so must be the machine"
#endif

enum { POSITION, TIME, TXID, OPS, SCHEMAS, KEYS, BEFORES, AFTERS, MIGRATION, PART, MORE, FIELDS };
enum { COLUMNS = 12, BUFFERS = 28, ROW_BYTES = 64, TEXTS = 3 };
enum { OFFSET_AT = 1, INDEX_AT = 3, TIME_AT = 5, TXID_AT = 7, OP_AT = 9, SCHEMA_AT = 11, TEXTS_AT = 12 };
enum { POSITION_AT = 21, HLC_AT = 25, MIGRATION_AT = 27 }; /* of texts: validity, the offsets next, then the bytes */
/* What this file knows of others; where they have changed since it was compiled, it is not used. */
#define LAYOUT                                                                                          \
    "position commit_time_us txid ops schemas keys befores afters migration part more: offset index " \
    "commit_time_us txid op schema key before after position hlc migration"
#define UNLOCKED_BYTES_MIN (64 * 1024) /* below this, to wait for the lock again would cost more than to keep it */

typedef struct {
    PyObject *owner; /* held: other threads run while the bytes are copied. NULL for none. */
    const char *data;
    Py_ssize_t size;
} Text;

typedef struct {
    Py_ssize_t changes;
    int64_t time, txid;
    int migration;
    Text position; /* owned by the draft's tuple */
} Commit;

typedef struct {
    Py_ssize_t commits, changes;
    Commit *commit;
    Text *text[TEXTS]; /* keys, befores, afters */
    int8_t *op;
    int32_t *schema;
    Py_ssize_t text_bytes[TEXTS], nulls[TEXTS], position_bytes, position_nulls;
} Plan;

/* Return the number of changes of a draft; 0 where its columns differ in length, -1 where they are no lists. */
static Py_ssize_t count_changes(PyObject *row) {
    if (!PyTuple_Check(row) || PyTuple_Size(row) != FIELDS) return -1;
    Py_ssize_t count = -1;
    for (int field = OPS; field <= AFTERS; field++) {
        PyObject *column = PyTuple_GetItem(row, field);
        if (!PyList_Check(column)) return -1;
        Py_ssize_t size = PyList_Size(column);
        if (count >= 0 && size != count) return 0;
        count = size;
    }
    return count;
}

static PyObject *other_way(void) {
    PyErr_Clear();
    Py_RETURN_NONE;
}

static PyObject *measure(PyObject *self, PyObject *args) {
    PyObject *rows;
    long schema_count;
    if (!PyArg_ParseTuple(args, "O!l", &PyList_Type, &rows, &schema_count)) return NULL;
    Py_ssize_t commits = PyList_Size(rows), changes = 0, size_bytes = 0;
    for (Py_ssize_t i = 0; i < commits; i++) {
        PyObject *row = PyList_GetItem(rows, i);
        Py_ssize_t count = count_changes(row);
        if (count <= 0) return other_way();
        int part = PyObject_IsTrue(PyTuple_GetItem(row, PART)) || PyTuple_GetItem(row, MORE) != Py_False;
        if (part && commits > 1) return other_way();
        PyObject *schemas = PyTuple_GetItem(row, SCHEMAS), *last = NULL;
        for (Py_ssize_t j = 0; j < count; j++) {
            PyObject *schema = PyList_GetItem(schemas, j);
            if (schema == last) continue; /* mostly all are one object */
            long number = PyLong_AsLong(last = schema);
            if (number < 1 || number > schema_count) return other_way();
        }
        for (int field = KEYS; field <= AFTERS; field++) {
            PyObject *column = PyTuple_GetItem(row, field);
            for (Py_ssize_t j = 0; j < count; j++) {
                PyObject *value = PyList_GetItem(column, j);
                if (value == Py_None && field != KEYS) continue;
                Py_ssize_t size = PyBytes_Size(value);
                if (size < 0) return other_way(); /* it is no bytes */
                size_bytes += size;
            }
        }
        changes += count;
    }
    return commits ? Py_BuildValue("nn", changes, size_bytes + changes * ROW_BYTES) : other_way();
}

static void let_go(Plan *plan) {
    for (int i = 0; plan->text[0] && i < TEXTS; i++)
        for (Py_ssize_t j = 0; j < plan->changes; j++) Py_XDECREF(plan->text[i][j].owner);
    void *taken[] = {plan->text[0], plan->commit, plan->op, plan->schema};
    for (int i = 0; i < 4; i++) PyMem_Free(taken[i]);
}

static int read_texts(Plan *plan, PyObject *row, Py_ssize_t count, Py_ssize_t at) {
    for (int i = 0; i < TEXTS; i++) {
        PyObject *column = PyTuple_GetItem(row, KEYS + i);
        for (Py_ssize_t j = 0; j < count; j++) {
            PyObject *value = PyList_GetItem(column, j);
            if (value == Py_None && i && ++plan->nulls[i]) continue;
            Text *text = &plan->text[i][at + j];
            if (PyBytes_AsStringAndSize(value, (char **)&text->data, &text->size)) return 0;
            Py_INCREF(text->owner = value);
            plan->text_bytes[i] += text->size;
        }
    }
    return 1;
}

static int read_numbers(Plan *plan, PyObject *row, Py_ssize_t count, Py_ssize_t at) {
    PyObject *ops = PyTuple_GetItem(row, OPS), *schemas = PyTuple_GetItem(row, SCHEMAS);
    PyObject *last_op = NULL, *last_schema = NULL;
    long op = 0, schema = 0;
    for (Py_ssize_t j = 0; j < count; j++) {
        PyObject *value = PyList_GetItem(ops, j);
        if (value != last_op) op = PyLong_AsLong(last_op = value);
        value = PyList_GetItem(schemas, j);
        if (value != last_schema) schema = PyLong_AsLong(last_schema = value);
        if (op < 0 || op > INT8_MAX || schema < 0 || schema > INT32_MAX) return 0;
        plan->op[at + j] = (int8_t)op;
        plan->schema[at + j] = (int32_t)schema;
    }
    return !PyErr_Occurred();
}

/* Collect what the drafts hold, so that it can be written without looking at another object. Return 0 on failure. */
static int read_rows(Plan *plan, PyObject *rows) {
    plan->commits = PyList_Size(rows);
    plan->commit = PyMem_Calloc(plan->commits, sizeof(Commit));
    if (!plan->commit) return 0;
    for (Py_ssize_t i = 0; i < plan->commits; i++) {
        Py_ssize_t count = count_changes(PyList_GetItem(rows, i));
        if (count <= 0) return 0;
        plan->commit[i].changes = count;
        plan->changes += count;
    }
    plan->text[0] = PyMem_Calloc(TEXTS * plan->changes, sizeof(Text));
    for (int i = 1; plan->text[0] && i < TEXTS; i++) plan->text[i] = plan->text[0] + i * plan->changes;
    plan->op = PyMem_Malloc(plan->changes);
    plan->schema = PyMem_Malloc(plan->changes * sizeof(int32_t));
    if (!plan->op || !plan->schema || !plan->text[0]) return 0;
    plan->position_nulls = plan->changes;
    for (Py_ssize_t i = 0, at = 0; i < plan->commits; at += plan->commit[i++].changes) {
        PyObject *row = PyList_GetItem(rows, i);
        Commit *commit = &plan->commit[i];
        commit->time = PyLong_AsLongLong(PyTuple_GetItem(row, TIME));
        commit->txid = PyLong_AsLongLong(PyTuple_GetItem(row, TXID));
        commit->migration = PyObject_IsTrue(PyTuple_GetItem(row, MIGRATION));
        if (PyTuple_GetItem(row, MORE) == Py_False) {
            commit->position.owner = PyTuple_GetItem(row, POSITION);
            commit->position.data = PyUnicode_AsUTF8AndSize(commit->position.owner, &commit->position.size);
            if (!commit->position.data) return 0;
            plan->position_bytes += commit->position.size;
            plan->position_nulls--;
        }
        if (!read_numbers(plan, row, commit->changes, at) || !read_texts(plan, row, commit->changes, at)) return 0;
    }
    for (int i = 0; i < TEXTS; i++)
        if (plan->text_bytes[i] > INT32_MAX) return 0;
    return plan->position_bytes <= INT32_MAX && !PyErr_Occurred();
}

static size_t padded(size_t size) { return (size + 7) & ~(size_t)7; }

static void put_texts(const Plan *plan, int i, char **text_at) {
    char *validity = text_at[0], *offsets = text_at[1], *bytes = text_at[2];
    int32_t end = 0;
    memcpy(offsets, &end, 4);
    for (Py_ssize_t j = 0; j < plan->changes; j++) {
        const Text *text = &plan->text[i][j];
        if (text->owner) {
            if (plan->nulls[i]) validity[j >> 3] |= (char)(1 << (j & 7));
            memcpy(bytes + end, text->data, text->size);
            end += (int32_t)text->size;
        }
        memcpy(offsets + 4 * (j + 1), &end, 4);
    }
}

/* Write each buffer at its place. Bitmaps are zero before. */
static void put_body(const Plan *plan, char **buffer, const long long first[3]) {
    memcpy(buffer[OP_AT], plan->op, plan->changes);
    memcpy(buffer[SCHEMA_AT], plan->schema, plan->changes * sizeof(int32_t));
    for (int i = 0; i < TEXTS; i++) put_texts(plan, i, buffer + TEXTS_AT + 3 * i);
    char *validity = buffer[POSITION_AT], *offsets = buffer[POSITION_AT + 1], *bytes = buffer[POSITION_AT + 2];
    int32_t end = 0;
    for (Py_ssize_t i = 0, at = 0; i < plan->commits; i++) {
        const Commit *commit = &plan->commit[i];
        static const int place[5] = {OFFSET_AT, INDEX_AT, TIME_AT, TXID_AT, HLC_AT};
        int64_t value[5] = {first[0] + at, first[1] + i, commit->time, commit->txid, first[2] + i};
        Py_ssize_t last = at + commit->changes - 1;
        for (; at <= last; at++, value[0]++) {
            for (int k = 0; k < 5; k++) memcpy(buffer[place[k]] + 8 * at, &value[k], 8);
            if (commit->migration) buffer[MIGRATION_AT][at >> 3] |= (char)(1 << (at & 7));
            memcpy(offsets + 4 * at, &end, 4);
        }
        if (commit->position.owner) {
            if (plan->position_nulls) validity[last >> 3] |= (char)(1 << (last & 7));
            memcpy(bytes + end, commit->position.data, commit->position.size);
            end += (int32_t)commit->position.size;
        }
        memcpy(offsets + 4 * at, &end, 4);
    }
}

/* Fill the sizes of the 28 buffers; return that of the body. */
static size_t lay_out(const Plan *plan, int64_t size[BUFFERS]) {
    const int64_t n = plan->changes, bits = (n + 7) / 8;
    memset(size, 0, BUFFERS * sizeof(int64_t));
    size[OFFSET_AT] = size[INDEX_AT] = size[TIME_AT] = size[TXID_AT] = size[HLC_AT] = 8 * n;
    size[OP_AT] = n, size[SCHEMA_AT] = 4 * n, size[MIGRATION_AT] = bits;
    for (int i = 0; i <= TEXTS; i++) { /* the last one is the position */
        int64_t *text = size + TEXTS_AT + 3 * i;
        text[0] = (i < TEXTS ? plan->nulls[i] : plan->position_nulls) ? bits : 0;
        text[1] = 4 * (n + 1);
        text[2] = i < TEXTS ? plan->text_bytes[i] : plan->position_bytes;
    }
    size_t body = 0;
    for (int i = 0; i < BUFFERS; i++) body += padded(size[i]);
    return body;
}

/* Write the head and the body. `at` says where in the head the counts, sizes and places belong. */
static void put_message(const Plan *plan, char *message, const char *head, size_t head_bytes, const Py_ssize_t at[4],
                        const int64_t size[BUFFERS], int64_t body_bytes, const long long first[3]) {
    const int64_t rows = plan->changes;
    char *buffer[BUFFERS];
    memcpy(message, head, head_bytes);
    memcpy(message + at[0], &body_bytes, 8);
    memcpy(message + at[1], &rows, 8);
    for (int i = 0; i < COLUMNS; i++) {
        const int64_t nulls = i < 6 || i > 9 ? 0 : i < 9 ? plan->nulls[i - 6] : plan->position_nulls;
        memcpy(message + at[2] + 16 * i, &rows, 8);
        memcpy(message + at[2] + 16 * i + 8, &nulls, 8);
    }
    int64_t place = 0;
    for (int i = 0; i < BUFFERS; i++) {
        memcpy(message + at[3] + 16 * i, &place, 8);
        memcpy(message + at[3] + 16 * i + 8, &size[i], 8);
        buffer[i] = message + head_bytes + place;
        place += padded(size[i]);
        /* Only bitmaps must begin as zeros, and what pads a buffer. */
        int bitmap = i == MIGRATION_AT || (i >= TEXTS_AT && i <= POSITION_AT && i % 3 == 0);
        size_t kept = bitmap ? 0 : size[i];
        memset(buffer[i] + kept, 0, padded(size[i]) - kept);
    }
    put_body(plan, buffer, first);
}

static PyObject *encode(PyObject *self, PyObject *args) {
    PyObject *rows, *allocate;
    const char *head;
    Py_ssize_t head_bytes, at[4];
    long long first[3];
    if (!PyArg_ParseTuple(args, "O!LLLy#(nnnn)O", &PyList_Type, &rows, &first[0], &first[1], &first[2], &head,
                          &head_bytes, &at[0], &at[1], &at[2], &at[3], &allocate))
        return NULL;
    Plan plan = {0};
    Py_buffer view;
    int64_t size[BUFFERS];
    if (!PyList_Size(rows) || !read_rows(&plan, rows)) {
        let_go(&plan);
        return other_way();
    }
    size_t body_bytes = lay_out(&plan, size), total = head_bytes + body_bytes;
    PyObject *made = PyObject_CallFunction(allocate, "n", (Py_ssize_t)total);
    if (made && PyObject_GetBuffer(made, &view, PyBUF_WRITABLE)) Py_CLEAR(made);
    if (made) {
        PyThreadState *state = total >= UNLOCKED_BYTES_MIN ? PyEval_SaveThread() : NULL;
        put_message(&plan, view.buf, head, head_bytes, at, size, body_bytes, first);
        if (state) PyEval_RestoreThread(state);
        PyBuffer_Release(&view);
    }
    let_go(&plan);
    return made;
}

static int say_layout(PyObject *module) { return PyModule_AddStringConstant(module, "LAYOUT", LAYOUT); }
static PyMethodDef methods[] = {
    {"measure", measure, METH_VARARGS, NULL}, {"encode", encode, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyModuleDef_Slot slots[] = {{Py_mod_exec, say_layout}, {0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "tailrace.log._payload", NULL, 0, methods, slots};
PyMODINIT_FUNC PyInit__payload(void) { return PyModuleDef_Init(&module); }
