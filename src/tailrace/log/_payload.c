/* The payload of a frame, from drafts in one pass: what `tailrace.log.batch` does with Arrow's builders. Optional:
   `tailrace.log.payload` calls it where it was built; docs/decisions/compiled-helper.md says when and why.
   Only the stable interface of Python 3.11 is used, so one build serves every later version.

   A draft comes as the tuple of its fields. Both functions return None for values that are not of the plain kind (a key
   that is no `bytes`, a number that does not fit): the caller then takes the other way, which says what is wrong. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include "_message.h"

enum { POSITION, TIME, TXID, OPS, SCHEMAS, KEYS, BEFORES, AFTERS, MIGRATION, PART, MORE, FIELDS };
enum { ROW_BYTES = 64, CHANGE_TEXTS = 3, POSITIONS = 3 }; /* a change has three texts; the fourth is its commit's */
/* What this file knows of others; where they have changed since it was compiled, it is not used. */
#define LAYOUT "position commit_time_us txid ops schemas keys befores afters migration part more: " MESSAGE_COLUMNS
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
    Text *text[CHANGE_TEXTS]; /* keys, befores, afters */
    int8_t *op;
    int32_t *schema;
    int64_t text_bytes[TEXTS], nulls[TEXTS];
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
    for (int i = 0; plan->text[0] && i < CHANGE_TEXTS; i++)
        for (Py_ssize_t j = 0; j < plan->changes; j++) Py_XDECREF(plan->text[i][j].owner);
    void *taken[] = {plan->text[0], plan->commit, plan->op, plan->schema};
    for (int i = 0; i < 4; i++) PyMem_Free(taken[i]);
}

static int read_texts(Plan *plan, PyObject *row, Py_ssize_t count, Py_ssize_t at) {
    for (int i = 0; i < CHANGE_TEXTS; i++) {
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
    plan->text[0] = PyMem_Calloc(CHANGE_TEXTS * plan->changes, sizeof(Text));
    for (int i = 1; plan->text[0] && i < CHANGE_TEXTS; i++) plan->text[i] = plan->text[0] + i * plan->changes;
    plan->op = PyMem_Malloc(plan->changes);
    plan->schema = PyMem_Malloc(plan->changes * sizeof(int32_t));
    if (!plan->op || !plan->schema || !plan->text[0]) return 0;
    plan->nulls[POSITIONS] = plan->changes;
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
            plan->text_bytes[POSITIONS] += commit->position.size;
            plan->nulls[POSITIONS]--;
        }
        if (!read_numbers(plan, row, commit->changes, at) || !read_texts(plan, row, commit->changes, at)) return 0;
    }
    for (int i = 0; i < TEXTS; i++)
        if (plan->text_bytes[i] > INT32_MAX) return 0;
    return !PyErr_Occurred();
}

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
    for (int i = 0; i < CHANGE_TEXTS; i++) put_texts(plan, i, buffer + TEXTS_AT + 3 * i);
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
            if (plan->nulls[POSITIONS]) validity[last >> 3] |= (char)(1 << (last & 7));
            memcpy(bytes + end, commit->position.data, commit->position.size);
            end += (int32_t)commit->position.size;
        }
        memcpy(offsets + 4 * at, &end, 4);
    }
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
    char *buffer[BUFFERS];
    if (!PyList_Size(rows) || !read_rows(&plan, rows)) {
        let_go(&plan);
        return other_way();
    }
    size_t body_bytes = lay_out(plan.changes, plan.nulls, plan.text_bytes, size), total = head_bytes + body_bytes;
    PyObject *made = PyObject_CallFunction(allocate, "n", (Py_ssize_t)total);
    if (made && PyObject_GetBuffer(made, &view, PyBUF_WRITABLE)) Py_CLEAR(made);
    if (made) {
        PyThreadState *state = total >= UNLOCKED_BYTES_MIN ? PyEval_SaveThread() : NULL;
        put_head(view.buf, head, head_bytes, at, plan.changes, plan.nulls, size, body_bytes, buffer);
        put_body(&plan, buffer, first);
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
