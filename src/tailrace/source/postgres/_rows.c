/* Rows of pgoutput as changes of a draft, many in one call: what `tailrace.source.postgres.transactions` does message by
   message. Optional, like `tailrace/log/_payload.c`; docs/decisions/compiled-helper.md says when and why.
   Only the stable interface of Python 3.11 is used, so one build serves every later version.

   A frame is a CopyData message of the server, with all its bytes:
     d  int32 length, itself included  w  three int64  message of pgoutput
   `add` takes the frames of inserts, updates and deletes of tables that have a plan, and stops before the first that is
   anything else, or is not as it must be: the pure way takes that one, or says what is wrong with it. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* How a value becomes JSON; `tailrace.source.postgres.type_info` has the same names in the same order. */
enum { TEXT_MAX = 16 << 20 }; /* larger ones take the way in Python */
enum { CALL, RAW, PLAIN, BOOL, FLOAT, BYTES, GEOMETRY, TEXT, WAYS };
#define LAYOUT "call raw plain bool float bytes geometry text"
#define PLAN_NAME "tailrace.source.postgres._rows.plan"
enum { FRAME_HEAD = 5, DATA_HEAD = 25, COLUMNS_MAX = 1664 }; /* a table of PostgreSQL has no more columns */

typedef struct {
    PyObject *member; /* `"name":` */
    const char *member_data;
    Py_ssize_t member_size;
    PyObject *encoder;
    int way;
} Column;

typedef struct {
    PyObject *number;
    int count, key_count, whole_row;
    Column *column;
    int *key;
    char *is_key;
} Plan;

typedef struct {
    char sent; /* n, u or t */
    const uint8_t *data;
    Py_ssize_t size;
} Cell;

typedef struct {
    char *data;
    size_t size, room;
} Out;

typedef struct {
    const uint8_t *at, *end;
} Reader;

static void free_plan(Plan *plan) {
    for (int i = 0; plan->column && i < plan->count; i++) {
        Py_XDECREF(plan->column[i].member);
        Py_XDECREF(plan->column[i].encoder);
    }
    Py_XDECREF(plan->number);
    PyMem_Free(plan->column);
    PyMem_Free(plan->key);
    PyMem_Free(plan->is_key);
    PyMem_Free(plan);
}

static void destroy(PyObject *capsule) { free_plan(PyCapsule_GetPointer(capsule, PLAN_NAME)); }

static int fill_plan(Plan *plan, PyObject *columns, PyObject *key) {
    plan->column = PyMem_Calloc(plan->count + 1, sizeof(Column));
    plan->key = PyMem_Calloc(plan->key_count + 1, sizeof(int));
    plan->is_key = PyMem_Calloc(plan->count + 1, 1);
    if (!plan->column || !plan->key || !plan->is_key) return PyErr_NoMemory(), 0;
    for (int i = 0; i < plan->count; i++) {
        Column *column = &plan->column[i];
        PyObject *member, *encoder;
        if (!PyArg_ParseTuple(PyTuple_GetItem(columns, i), "SOi", &member, &encoder, &column->way)) return 0;
        Py_INCREF(column->member = member);
        Py_INCREF(column->encoder = encoder);
        if (PyBytes_AsStringAndSize(member, (char **)&column->member_data, &column->member_size)) return 0;
        if (column->way < 0 || column->way >= WAYS) return PyErr_SetString(PyExc_ValueError, "no such way"), 0;
    }
    for (int i = 0; i < plan->key_count; i++) {
        long place = PyLong_AsLong(PyTuple_GetItem(key, i));
        if (place < 0 || place >= plan->count) return PyErr_SetString(PyExc_ValueError, "no such column"), 0;
        plan->key[i] = (int)place;
        plan->is_key[place] = 1;
    }
    return 1;
}

static PyObject *make_plan(PyObject *self, PyObject *args) {
    PyObject *number, *columns, *key;
    int whole_row;
    if (!PyArg_ParseTuple(args, "OO!O!p", &number, &PyTuple_Type, &columns, &PyTuple_Type, &key, &whole_row)) return NULL;
    if (PyTuple_Size(columns) > COLUMNS_MAX || PyTuple_Size(key) > COLUMNS_MAX) Py_RETURN_NONE;
    Plan *plan = PyMem_Calloc(1, sizeof(Plan));
    if (!plan) return PyErr_NoMemory();
    Py_INCREF(plan->number = number);
    plan->count = (int)PyTuple_Size(columns), plan->key_count = (int)PyTuple_Size(key), plan->whole_row = whole_row;
    PyObject *capsule = fill_plan(plan, columns, key) ? PyCapsule_New(plan, PLAN_NAME, destroy) : NULL;
    if (!capsule) free_plan(plan);
    return capsule;
}

/* Writing */

static char *room(Out *out, size_t more) {
    if (out->room - out->size < more) {
        size_t wanted = 2 * out->room > out->size + more ? 2 * out->room : out->size + more;
        char *grown = PyMem_Realloc(out->data, wanted);
        if (!grown) return PyErr_NoMemory(), NULL;
        out->data = grown, out->room = wanted;
    }
    return out->data + out->size;
}

static int put(Out *out, const void *data, size_t size) {
    char *to = room(out, size);
    if (!to) return 0;
    memcpy(to, data, size);
    out->size += size;
    return 1;
}

static int put_quoted(Out *out, const Cell *cell) {
    char *to = room(out, cell->size + 2);
    if (!to) return 0;
    to[0] = '"';
    memcpy(to + 1, cell->data, cell->size);
    to[cell->size + 1] = '"';
    out->size += cell->size + 2;
    return 1;
}

static int put_called(Out *out, const Cell *cell, PyObject *encoder) {
    if (PyErr_Occurred()) return 0; /* another part of this change has failed: that is what is to be said */
    PyObject *made = PyObject_CallFunction(encoder, "y#", (const char *)cell->data, cell->size);
    char *data;
    Py_ssize_t size;
    int done = made && !PyBytes_AsStringAndSize(made, &data, &size) && put(out, data, size);
    Py_XDECREF(made);
    return done;
}

static int put_float(Out *out, const Cell *cell) {
    const uint8_t *text = cell->data;
    if (!cell->size || text[cell->size - 1] < '0' || text[cell->size - 1] > '9')
        return put(out, "{\"t\":\"f64\",\"v\":", 15) && put_quoted(out, cell) && put(out, "}", 1);
    Py_ssize_t i = text[0] == '-';
    while (i < cell->size && text[i] >= '0' && text[i] <= '9') i++;
    return put(out, text, cell->size) && (i < cell->size || put(out, ".0", 2));
}

static int hex(uint8_t digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    digit |= 0x20;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* Put hexadecimal digits as base64; return 0 on failure, -1 where they are none. */
static int put_base64(Out *out, const uint8_t *text, Py_ssize_t size) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if (size % 2) return -1;
    for (Py_ssize_t i = 0; i < size; i++)
        if (hex(text[i]) < 0) return -1;
    Py_ssize_t bytes = size / 2;
    char *to = room(out, (bytes + 2) / 3 * 4 + 2);
    if (!to) return 0;
    *to++ = '"';
    for (Py_ssize_t i = 0; i < bytes; i += 3) {
        uint32_t word = 0;
        int here = bytes - i < 3 ? (int)(bytes - i) : 3;
        for (int k = 0; k < 3; k++)
            word = word << 8 | (k < here ? (uint32_t)(hex(text[2 * (i + k)]) << 4 | hex(text[2 * (i + k) + 1])) : 0);
        for (int k = 0; k < 4; k++) *to++ = k <= here ? digits[word >> (18 - 6 * k) & 63] : '=';
    }
    *to++ = '"';
    out->size = to - out->data;
    return 1;
}

/* Return the bytes of the character that begins with a byte above 127; 0 where it is no UTF-8. */
static int character(const uint8_t *at, Py_ssize_t left) {
    uint8_t first = at[0], low = 0x80, high = 0xBF;
    int size = first >= 0xC2 && first <= 0xDF ? 2 : first >= 0xE0 && first <= 0xEF ? 3
             : first >= 0xF0 && first <= 0xF4 ? 4 : 0;
    if (!size || left < size) return 0;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F; /* what follows is half of a pair */
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
    if (at[1] < low || at[1] > high) return 0;
    for (int i = 2; i < size; i++)
        if (at[i] < 0x80 || at[i] > 0xBF) return 0;
    return size;
}

/* Tell whether one of eight bytes is below 32, above 127, a quote or a backslash. */
static int special(const uint8_t *at) {
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    uint64_t word, quote, slash;
    memcpy(&word, at, 8);
    quote = word ^ (ones * '"'), slash = word ^ (ones * '\\');
    return ((word | (word - ones * 32) | (quote - ones) | (slash - ones)) & tops) != 0;
}

/* Put a text as a string of JSON; return 0 on failure, -1 where it is no UTF-8. */
static int put_text(Out *out, const Cell *cell) {
    if (cell->size > TEXT_MAX) return -1; /* six times that need not be there */
    const uint8_t *at = cell->data, *end = at + cell->size;
    char *to = room(out, 6 * (size_t)cell->size + 2); /* a control character takes six */
    if (!to) return 0;
    *to++ = '"';
    while (at < end) {
        if (end - at >= 8 && !special(at)) {
            memcpy(to, at, 8);
            to += 8, at += 8;
            continue;
        }
        uint8_t byte = *at;
        if (byte >= 0x80) {
            int size = character(at, end - at);
            if (!size) return -1;
            for (int i = 0; i < size; i++) *to++ = (char)*at++;
            continue;
        }
        at++;
        if (byte >= 32 && byte != '"' && byte != '\\') {
            *to++ = (char)byte;
            continue;
        }
        static const char escaped[] = "uuuuuuuubtnufruuuuuuuuuuuuuuuuuu", digits[] = "0123456789abcdef";
        char letter = byte < 32 ? escaped[byte] : (char)byte;
        *to++ = '\\', *to++ = letter;
        if (letter == 'u') *to++ = '0', *to++ = '0', *to++ = digits[byte >> 4], *to++ = digits[byte & 15];
    }
    *to++ = '"';
    out->size = to - out->data;
    return 1;
}

static int put_natural(Out *out, const Cell *cell, const Column *column) {
    int done;
    if (cell->sent != 't') return put(out, "null", 4);
    switch (column->way) {
    case RAW:
        return put(out, cell->data, cell->size);
    case PLAIN:
        return put_quoted(out, cell);
    case BOOL:
        return cell->size == 1 && cell->data[0] == 't' ? put(out, "true", 4) : put(out, "false", 5);
    case FLOAT:
        return put_float(out, cell);
    case BYTES:
        done = cell->size < 2 ? -1 : put_base64(out, cell->data + 2, cell->size - 2);
        break;
    case GEOMETRY:
        done = put_base64(out, cell->data, cell->size);
        break;
    case TEXT:
        done = put_text(out, cell);
        break;
    default:
        done = -1;
    }
    return done >= 0 ? done : put_called(out, cell, column->encoder);
}

static PyObject *taken(const Out *out) { return PyBytes_FromStringAndSize(out->data, (Py_ssize_t)out->size); }

static PyObject *image_of(Out *out, const Plan *plan, const Cell *cells) {
    out->size = 0;
    if (!put(out, "{", 1)) return NULL;
    for (int i = 0, some = 0; i < plan->count; i++) {
        const Column *column = &plan->column[i];
        if (cells[i].sent == 'u') continue;
        if (some++ && !put(out, ",", 1)) return NULL;
        if (!put(out, column->member_data, column->member_size) || !put_natural(out, &cells[i], column)) return NULL;
    }
    return put(out, "}", 1) ? taken(out) : NULL;
}

static PyObject *key_of(Out *out, const Plan *plan, const Cell *cells, int named) {
    out->size = 0;
    if (!put(out, named ? "{" : "[", 1)) return NULL;
    for (int i = 0; i < plan->key_count; i++) {
        const Column *column = &plan->column[plan->key[i]];
        if (i && !put(out, ",", 1)) return NULL;
        if (named && !put(out, column->member_data, column->member_size)) return NULL;
        if (!put_natural(out, &cells[plan->key[i]], column)) return NULL;
    }
    return put(out, named ? "}" : "]", 1) ? taken(out) : NULL;
}

/* Reading. Each returns 0 where the message is not as it must be. */

static uint32_t big32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static int read_byte(Reader *reader, uint8_t *byte) {
    if (reader->at >= reader->end) return 0;
    *byte = *reader->at++;
    return 1;
}

static int read_number(Reader *reader, uint32_t *number) {
    if (reader->end - reader->at < 4) return 0;
    *number = big32(reader->at);
    reader->at += 4;
    return 1;
}

static int read_cells(Reader *reader, const Plan *plan, Cell *cells) {
    if (reader->end - reader->at < 2 || (reader->at[0] << 8 | reader->at[1]) != plan->count) return 0;
    reader->at += 2;
    for (int i = 0; i < plan->count; i++) {
        uint8_t sent;
        uint32_t size;
        if (!read_byte(reader, &sent)) return 0;
        cells[i].sent = (char)sent;
        if (sent == 'n' || sent == 'u') continue;
        if (sent != 't' || !read_number(reader, &size) || size > (size_t)(reader->end - reader->at)) return 0;
        cells[i].data = reader->at, cells[i].size = size;
        reader->at += size;
    }
    return 1;
}

/* Adding */

enum { OPS, SCHEMAS, KEYS, BEFORES, AFTERS, LISTS };

typedef struct {
    PyObject *list[LISTS], *insert, *update, *delete;
    Cell *old, *new;
    Out out;
} Target;

/* Add a change, and let go of key and images; return 0 on failure. */
static int append(Target *target, PyObject *op, const Plan *plan, PyObject *key, PyObject *before, PyObject *after) {
    PyObject *value[LISTS] = {op, plan->number, key, before, after};
    int done = key && before && after;
    for (int i = 0; done && i < LISTS; i++) done = !PyList_Append(target->list[i], value[i]);
    for (int i = KEYS; i < LISTS; i++) Py_XDECREF(value[i]);
    return done;
}

static PyObject *none(void) {
    Py_INCREF(Py_None);
    return Py_None;
}

static PyObject *before_of(Target *target, const Plan *plan, uint8_t kind) {
    return kind == 'K' ? key_of(&target->out, plan, target->old, 1) : image_of(&target->out, plan, target->old);
}

static int add_update(Target *target, const Plan *plan, uint8_t kind) {
    Out *out = &target->out;
    Cell *old = target->old, *new = target->new;
    if (kind == 'N')
        return append(target, target->update, plan, key_of(out, plan, new, 0), key_of(out, plan, new, 1),
                      image_of(out, plan, new));
    for (int i = 0; i < plan->count; i++)
        if (new[i].sent == 'u' && (kind == 'O' || plan->is_key[i])) new[i] = old[i];
    PyObject *key_before = key_of(out, plan, old, 0), *key_after = key_of(out, plan, new, 0);
    PyObject *before = before_of(target, plan, kind), *after = image_of(out, plan, new);
    int same = key_before && key_after && !plan->whole_row
        ? PyObject_RichCompareBool(key_before, key_after, Py_EQ) : 0;
    if (same > 0) {
        Py_DECREF(key_before);
        return append(target, target->update, plan, key_after, before, after);
    }
    int deleted = append(target, target->delete, plan, key_before, before, none());
    return append(target, target->insert, plan, key_after, none(), after) && deleted;
}

static int add_change(Target *target, const Plan *plan, uint8_t type, uint8_t kind) {
    Out *out = &target->out;
    if (type == 'U') return add_update(target, plan, kind);
    if (type == 'I')
        return append(target, target->insert, plan, key_of(out, plan, target->new, 0), none(),
                      image_of(out, plan, target->new));
    return append(target, target->delete, plan, key_of(out, plan, target->old, 0), before_of(target, plan, kind), none());
}

/* Read a message behind the number of its table; return 0 where it is for the pure way. */
static int read_change(Reader *reader, Target *target, const Plan *plan, uint8_t type, uint8_t *kind) {
    if (!read_byte(reader, kind)) return 0;
    if (type == 'I' && *kind != 'N') return 0;
    if (type == 'D' && *kind != 'K' && *kind != 'O') return 0;
    if (type != 'I' && (*kind == 'K' || *kind == 'O')) {
        if (!read_cells(reader, plan, target->old)) return 0;
        uint8_t next;
        if (type == 'U' && (!read_byte(reader, &next) || next != 'N')) return 0;
    } else if (*kind != 'N') {
        return 0;
    }
    return (type == 'D' || read_cells(reader, plan, target->new)) && reader->at == reader->end;
}

/* Return the plan of a table, borrowed from a capsule that is set; NULL where it has none. */
static Plan *find_plan(PyObject *shapes, uint32_t oid, PyObject **capsule) {
    PyObject *number = PyLong_FromUnsignedLong(oid);
    PyObject *shape = number ? PyDict_GetItemWithError(shapes, number) : NULL;
    Py_XDECREF(number);
    *capsule = shape ? PyObject_GetAttrString(shape, "plan") : NULL;
    if (*capsule && PyCapsule_IsValid(*capsule, PLAN_NAME)) return PyCapsule_GetPointer(*capsule, PLAN_NAME);
    PyErr_Clear();
    Py_CLEAR(*capsule);
    return NULL;
}

/* Return the end of the frame at `at` where all of it is there and it is data; 0 otherwise. */
static Py_ssize_t frame_end(const uint8_t *data, Py_ssize_t at, Py_ssize_t end) {
    if (end - at < FRAME_HEAD || data[at] != 'd') return 0;
    size_t size = big32(data + at + 1);
    return size < 4 || size > (size_t)(end - at - 1) ? 0 : at + 1 + (Py_ssize_t)size;
}

static PyObject *whole(PyObject *self, PyObject *args) {
    Py_buffer view;
    Py_ssize_t at, end, next;
    if (!PyArg_ParseTuple(args, "y*nn", &view, &at, &end)) return NULL;
    if (at < 0 || end > view.len) end = at;
    while ((next = frame_end(view.buf, at, end))) at = next;
    PyBuffer_Release(&view);
    return PyLong_FromSsize_t(at);
}

static PyObject *rows_end(PyObject *self, PyObject *args) {
    Py_buffer view;
    Py_ssize_t at, next;
    if (!PyArg_ParseTuple(args, "y*n", &view, &at)) return NULL;
    const uint8_t *data = view.buf;
    while (at >= 0 && (next = frame_end(data, at, view.len))) {
        if (next - at < FRAME_HEAD + DATA_HEAD + 5 || data[at + FRAME_HEAD] != 'w') break;
        uint8_t type = data[at + FRAME_HEAD + DATA_HEAD];
        if (type != 'I' && type != 'U' && type != 'D') break;
        at = next;
    }
    PyBuffer_Release(&view);
    return PyLong_FromSsize_t(at);
}

static int is_aborted(PyObject *aborted, uint32_t xid) {
    PyObject *number = PyLong_FromUnsignedLong(xid);
    int found = number ? PySet_Contains(aborted, number) : -1;
    Py_XDECREF(number);
    return found;
}

/* Take frames until one is for the pure way; return 0 on failure. */
static int add_frames(Target *target, const uint8_t *data, Py_ssize_t *at, Py_ssize_t end, PyObject *shapes,
                      PyObject *aborted, const Py_ssize_t most[2], Py_ssize_t *size_bytes) {
    PyObject *capsule = NULL;
    Plan *plan = NULL;
    uint32_t oid = 0, last = 0, xid;
    Py_ssize_t next;
    int done = 1;
    while ((next = frame_end(data, *at, end))) {
        Reader reader = {data + *at + FRAME_HEAD, data + next};
        Py_ssize_t size = reader.end - reader.at - DATA_HEAD;
        uint8_t type, kind;
        if (size < 5 || reader.at[0] != 'w') break;
        if ((PyList_Size(target->list[OPS]) >= most[0] || *size_bytes >= most[1]) && PyList_Size(target->list[OPS])) break;
        reader.at += DATA_HEAD;
        type = *reader.at++;
        if (type != 'I' && type != 'U' && type != 'D') break;
        if (aborted != Py_None) { /* inside a stream: the number of the subtransaction comes first */
            if (!read_number(&reader, &xid)) break;
            int skipped = PySet_Size(aborted) ? is_aborted(aborted, xid) : 0;
            if (skipped < 0) { done = 0; break; }
            if (skipped) { *at = next; continue; }
        }
        if (!read_number(&reader, &oid)) break;
        if (!plan || oid != last) {
            Py_CLEAR(capsule);
            plan = find_plan(shapes, last = oid, &capsule);
        }
        if (!plan || !read_change(&reader, target, plan, type, &kind)) break;
        if (!(done = add_change(target, plan, type, kind))) break;
        *size_bytes += size;
        *at = next;
    }
    Py_CLEAR(capsule);
    return done;
}

static PyObject *add(PyObject *self, PyObject *args) {
    Py_buffer view;
    PyObject *shapes, *aborted;
    Py_ssize_t at, most[2], size_bytes;
    Target target = {0};
    PyObject **list = target.list;
    if (!PyArg_ParseTuple(args, "y*nO!O(O!O!O!O!O!)(OOO)(nn)n", &view, &at, &PyDict_Type, &shapes, &aborted, &PyList_Type,
                          &list[0], &PyList_Type, &list[1], &PyList_Type, &list[2], &PyList_Type, &list[3],
                          &PyList_Type, &list[4], &target.insert, &target.update, &target.delete, &most[0], &most[1],
                          &size_bytes))
        return NULL;
    int done = at >= 0 && (aborted == Py_None || PyAnySet_Check(aborted));
    if (!done) PyErr_SetString(PyExc_ValueError, "a place or a set was expected");
    target.old = PyMem_Calloc(2 * COLUMNS_MAX, sizeof(Cell));
    target.new = target.old ? target.old + COLUMNS_MAX : NULL;
    if (done && (!target.old || !room(&target.out, 4096))) done = (PyErr_NoMemory(), 0);
    if (done) done = add_frames(&target, view.buf, &at, view.len, shapes, aborted, most, &size_bytes);
    PyMem_Free(target.old);
    PyMem_Free(target.out.data);
    PyBuffer_Release(&view);
    return done ? Py_BuildValue("nn", at, size_bytes) : NULL;
}

static int say_layout(PyObject *module) { return PyModule_AddStringConstant(module, "LAYOUT", LAYOUT); }
static PyMethodDef methods[] = {{"make_plan", make_plan, METH_VARARGS, NULL},
                                {"whole", whole, METH_VARARGS, NULL},
                                {"rows_end", rows_end, METH_VARARGS, NULL},
                                {"add", add, METH_VARARGS, NULL},
                                {NULL, NULL, 0, NULL}};
static PyModuleDef_Slot slots[] = {{Py_mod_exec, say_layout}, {0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "tailrace.source.postgres._rows", NULL, 0, methods, slots};
PyMODINIT_FUNC PyInit__rows(void) { return PyModuleDef_Init(&module); }
