/* The changes of frames that a reader may want, found and copied without making a batch of each frame: what
   `tailrace.log.pick` does with Arrow's functions. Optional, like `_payload.c`; docs/decisions/compiled-helper.md says
   when and why. Only the stable interface of Python 3.11 is used, so one build serves every later version.

   `find` looks through the frames of a block and returns the rows that may be wanted, packed one behind the other;
   `join` makes one Arrow message of packed rows. What a frame says of its buffers is checked before it is followed.
   A frame that is not such as we write (another head, nulls where we have none) gives None: Arrow takes the block. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include "_message.h"

#define LAYOUT MESSAGE_COLUMNS
enum { HEAD_BYTES_MAX = 4096, TESTS_MAX = 200, DIGITS_MAX = 18 };
enum { NONE, ANY, FIRST_TEST }; /* what is wanted of a schema: nothing, all, or keys that pass a test */
enum { NUMBERS = 5 };
static const int number_at[NUMBERS] = {OFFSET_AT, INDEX_AT, TIME_AT, TXID_AT, HLC_AT};

typedef struct {
    int64_t rows, size[BUFFERS], nulls[TEXTS];
    const char *buffer[BUFFERS];
} Frame;

/* Keys between two integers; or, where there are `ends`, some keys by length and bytes, each up to one of the ends. */
typedef struct {
    long long lower, upper;
    const char *keys, *ends;
    Py_ssize_t keys_bytes, ends_bytes;
    uint64_t lengths; /* a bit for each length that occurs, by its lower six bits */
} Test;

typedef struct {
    const unsigned char *kinds; /* by number of schema; above the last one all is wanted */
    Py_ssize_t kinds_count;
    unsigned long long ops;
    int tests;
    Test test[TESTS_MAX];
} Sought;

typedef struct {
    int64_t number[NUMBERS];
    int32_t schema, length[TEXTS];
    int8_t op, migration, null[TEXTS];
} Row; /* then the bytes of its texts */

static int32_t int32_at(const char *column, int64_t row) {
    int32_t value;
    memcpy(&value, column + 4 * row, 4);
    return value;
}

static int64_t int64_at(const char *column, int64_t row) {
    int64_t value;
    memcpy(&value, column + 8 * row, 8);
    return value;
}

static int bit_at(const char *bits, int64_t row) { return bits[row >> 3] >> (row & 7) & 1; }

/* Take a payload apart; return 0 where it is not such as we write. */
static int open_frame(Frame *frame, const char *data, Py_ssize_t size, const char *head, Py_ssize_t head_bytes,
                      const Py_ssize_t at[4]) {
    static const int span[4] = {8, 8, 16 * COLUMNS, 16 * BUFFERS};
    char alike[HEAD_BYTES_MAX];
    if (size < head_bytes) return 0;
    memcpy(alike, data, head_bytes);
    for (int i = 0; i < 4; i++) memcpy(alike + at[i], head + at[i], span[i]);
    if (memcmp(alike, head, head_bytes)) return 0;
    const int64_t rows = frame->rows = int64_at(data + at[1], 0), body_bytes = size - head_bytes;
    if (int64_at(data + at[0], 0) > body_bytes || rows < 1 || rows > INT32_MAX / 16) return 0;
    for (int i = 0; i < COLUMNS; i++) {
        const int64_t nulls = int64_at(data + at[2] + 16 * i, 1);
        const int text = i - FIRST_TEXT;
        if (int64_at(data + at[2] + 16 * i, 0) != rows || nulls < 0) return 0;
        if (text > 0 && text < TEXTS) frame->nulls[text] = nulls;
        else if (nulls) return 0;
    }
    frame->nulls[0] = 0;
    int64_t need[BUFFERS];
    const int64_t none[TEXTS] = {0};
    lay_out(rows, frame->nulls, none, need);
    for (int i = 0; i < BUFFERS; i++) {
        const int64_t place = int64_at(data + at[3] + 16 * i, 0), bytes = int64_at(data + at[3] + 16 * i, 1);
        if (place < 0 || bytes < need[i] || place > body_bytes || bytes > body_bytes - place) return 0;
        frame->buffer[i] = data + head_bytes + place;
        frame->size[i] = bytes;
    }
    return 1;
}

/* Find a text of a row; return 0 where it is not within its buffer. Null is a text of no bytes. */
static int text_at(const Frame *frame, int text, int64_t row, const char **bytes, int32_t *length) {
    const int at = TEXTS_AT + 3 * text;
    const int32_t begin = int32_at(frame->buffer[at + 1], row), end = int32_at(frame->buffer[at + 1], row + 1);
    if (begin < 0 || begin > end || end > frame->size[at + 2]) return 0;
    *bytes = frame->buffer[at + 2] + begin;
    *length = end - begin;
    return 1;
}

static int has_key(const Test *test, const char *key, int32_t length) {
    if (!(test->lengths >> (length & 63) & 1)) return 0;
    Py_ssize_t low = 0, high = test->ends_bytes / 4;
    while (low < high) {
        const Py_ssize_t middle = (low + high) / 2;
        const int32_t begin = middle ? int32_at(test->ends, middle - 1) : 0;
        const int32_t size = int32_at(test->ends, middle) - begin;
        const int order = size != length ? (size < length ? -1 : 1) : memcmp(test->keys + begin, key, length);
        if (!order) return 1;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return 0;
}

/* Tell whether a key is an integer between two, or something else, of which nothing is known. */
static int is_within(const Test *test, const char *key, int32_t length) {
    const int32_t first = length > 1 && key[1] == '-' ? 2 : 1, end = length - 1;
    if (length < 3 || key[0] != '[' || key[end] != ']' || end <= first || end - first > DIGITS_MAX) return 1;
    long long value = 0;
    for (int32_t i = first; i < end; i++) {
        if (key[i] < '0' || key[i] > '9') return 1;
        value = 10 * value + (key[i] - '0');
    }
    if (first == 2) value = -value;
    return test->lower <= value && value <= test->upper;
}

/* Tell whether a row may be wanted; -1 where its key lies outside of the frame. */
static int is_wanted(const Sought *sought, const Frame *frame, int64_t row, uint32_t schema) {
    if (schema >= sought->kinds_count) return 1;
    const int kind = sought->kinds[schema];
    if (kind == NONE) return 0;
    const unsigned op = (unsigned char)frame->buffer[OP_AT][row];
    if (op > 63 || !(sought->ops >> op & 1)) return 0;
    if (kind == ANY) return 1;
    if (kind - FIRST_TEST >= sought->tests) return 1;
    const Test *test = &sought->test[kind - FIRST_TEST];
    const char *key;
    int32_t length;
    if (!text_at(frame, 0, row, &key, &length)) return -1;
    return test->ends ? has_key(test, key, length) : is_within(test, key, length);
}

typedef struct {
    Py_ssize_t frames, limit, count, packed_bytes;
    Frame *frame;
    int64_t *found; /* rows: the number of the frame in the upper half */
    uint32_t newest;
} Search;

/* Note the rows that may be wanted, and how many bytes they take; stop behind the limit. Return 0 on damage. */
static int search(Search *search, const Sought *sought) {
    for (Py_ssize_t i = 0; i < search->frames; i++) {
        const Frame *frame = &search->frame[i];
        const char *schemas = frame->buffer[SCHEMA_AT];
        for (int64_t row = 0; row < frame->rows; row++) {
            const uint32_t schema = (uint32_t)int32_at(schemas, row);
            if (schema > search->newest) search->newest = schema;
            if (schema < sought->kinds_count && sought->kinds[schema] == NONE) continue;
            const int wanted = is_wanted(sought, frame, row, schema);
            if (wanted < 0) return 0;
            if (!wanted) continue;
            if (search->count == search->limit) {
                search->count++;
                return 1;
            }
            search->packed_bytes += sizeof(Row);
            for (int text = 0; text < TEXTS; text++) {
                const char *bytes;
                int32_t length;
                if (!text_at(frame, text, row, &bytes, &length)) return 0;
                search->packed_bytes += length;
            }
            search->found[search->count++] = (int64_t)i << 32 | row;
        }
    }
    return 1;
}

static void pack(const Search *search, char *packed) {
    for (Py_ssize_t i = 0; i < search->count; i++) {
        const Frame *frame = &search->frame[search->found[i] >> 32];
        const int64_t at = search->found[i] & 0xffffffff;
        Row row = {{0}};
        char *texts = packed + sizeof(Row);
        for (int k = 0; k < NUMBERS; k++) row.number[k] = int64_at(frame->buffer[number_at[k]], at);
        row.schema = int32_at(frame->buffer[SCHEMA_AT], at);
        row.op = frame->buffer[OP_AT][at];
        row.migration = (int8_t)bit_at(frame->buffer[MIGRATION_AT], at);
        for (int text = 0; text < TEXTS; text++) {
            const char *bytes;
            text_at(frame, text, at, &bytes, &row.length[text]);
            row.null[text] = frame->nulls[text] && !bit_at(frame->buffer[TEXTS_AT + 3 * text], at);
            memcpy(texts, bytes, row.length[text]);
            texts += row.length[text];
        }
        memcpy(packed, &row, sizeof(Row));
        packed = texts;
    }
}

/* Read what is sought; return 0 with an exception where it cannot be. All that it shows is held by `args`. */
static int read_sought(Sought *sought, PyObject *tests) {
    Py_ssize_t count = PyList_Size(tests);
    if (count < 0 || count > TESTS_MAX) return PyErr_Format(PyExc_ValueError, "too many tests"), 0;
    for (sought->tests = 0; sought->tests < count; sought->tests++) {
        Test *test = &sought->test[sought->tests];
        if (!PyArg_ParseTuple(PyList_GetItem(tests, sought->tests), "LLz#z#", &test->lower, &test->upper, &test->keys,
                              &test->keys_bytes, &test->ends, &test->ends_bytes))
            return 0;
        int32_t begin = 0;
        for (Py_ssize_t i = 0; test->ends && i < test->ends_bytes / 4; i++) {
            const int32_t end = int32_at(test->ends, i);
            if (end < begin || end > test->keys_bytes) return PyErr_Format(PyExc_ValueError, "keys do not end so"), 0;
            test->lengths |= (uint64_t)1 << ((end - begin) & 63);
            begin = end;
        }
    }
    return 1;
}

/* Open all frames, given place and size of each; return -1 with an exception, 0 where one is not plain. */
static int open_frames(Search *search, const Py_buffer *data, PyObject *frames, const char *head,
                       Py_ssize_t head_bytes, const Py_ssize_t at[4]) {
    for (Py_ssize_t i = 0; i < search->frames; i++) {
        Py_ssize_t place, size;
        if (!PyArg_ParseTuple(PyList_GetItem(frames, i), "nn", &place, &size)) return -1;
        if (place < 0 || size < 0 || place > data->len || size > data->len - place) return 0;
        if (!open_frame(&search->frame[i], (const char *)data->buf + place, size, head, head_bytes, at)) return 0;
    }
    return 1;
}

static PyObject *found_rows(Search *found, const Sought *sought) {
    int64_t rows = 0;
    for (Py_ssize_t i = 0; i < found->frames; i++) rows += found->frame[i].rows;
    found->found = PyMem_Malloc((found->limit < rows ? found->limit + 1 : rows) * sizeof(int64_t));
    if (!found->found) return PyErr_NoMemory();
    PyThreadState *state = PyEval_SaveThread();
    const int good = search(found, sought);
    PyEval_RestoreThread(state);
    if (!good) Py_RETURN_NONE;
    const Frame *last = &found->frame[found->frames - 1];
    const long long first_offset = int64_at(found->frame[0].buffer[OFFSET_AT], 0);
    const long long last_offset = int64_at(last->buffer[OFFSET_AT], last->rows - 1);
    PyObject *packed = NULL;
    if (found->count > found->limit) {
        Py_INCREF(packed = Py_None);
    } else {
        packed = PyBytes_FromStringAndSize(NULL, found->packed_bytes);
        if (!packed) return NULL;
        pack(found, PyBytes_AsString(packed));
    }
    return Py_BuildValue("nkLLN", found->count, (unsigned long)found->newest, first_offset, last_offset, packed);
}

static PyObject *find(PyObject *self, PyObject *args) {
    PyObject *frames, *tests, *made = NULL;
    const char *head, *kinds;
    Py_ssize_t head_bytes, at[4];
    Py_buffer data;
    Search found = {0};
    Sought *sought = PyMem_Calloc(1, sizeof(Sought));
    if (!sought) return PyErr_NoMemory();
    if (!PyArg_ParseTuple(args, "y*O!y#(nnnn)y#O!Kn", &data, &PyList_Type, &frames, &head, &head_bytes, &at[0], &at[1],
                          &at[2], &at[3], &kinds, &sought->kinds_count, &PyList_Type, &tests, &sought->ops,
                          &found.limit)) {
        PyMem_Free(sought);
        return NULL;
    }
    sought->kinds = (const unsigned char *)kinds;
    found.frames = PyList_Size(frames);
    found.frame = PyMem_Calloc(found.frames ? found.frames : 1, sizeof(Frame));
    if (!found.frame) {
        PyErr_NoMemory();
    } else if (read_sought(sought, tests)) {
        const int plain = found.frames && found.limit >= 0 && head_bytes <= HEAD_BYTES_MAX
                              ? open_frames(&found, &data, frames, head, head_bytes, at)
                              : 0;
        if (plain > 0) made = found_rows(&found, sought);
        else if (!plain) Py_INCREF(made = Py_None);
    }
    PyMem_Free(found.found);
    PyMem_Free(found.frame);
    PyMem_Free(sought);
    PyBuffer_Release(&data);
    return made;
}

/* Count rows, nulls and bytes of packed rows, or, given `buffer`, write them there. */
static int64_t each_row(PyObject *parts, int64_t nulls[TEXTS], int64_t bytes[TEXTS], char **buffer) {
    int64_t count = 0, ends[TEXTS] = {0};
    for (Py_ssize_t i = 0; i < PyList_Size(parts); i++) {
        PyObject *part = PyList_GetItem(parts, i);
        const char *packed = PyBytes_AsString(part), *end = packed ? packed + PyBytes_Size(part) : NULL;
        if (!packed) return -1;
        for (Row row; packed < end; count++) {
            memcpy(&row, packed, sizeof(Row));
            packed += sizeof(Row);
            if (buffer) {
                for (int k = 0; k < NUMBERS; k++) memcpy(buffer[number_at[k]] + 8 * count, &row.number[k], 8);
                buffer[OP_AT][count] = row.op;
                memcpy(buffer[SCHEMA_AT] + 4 * count, &row.schema, 4);
                if (row.migration) buffer[MIGRATION_AT][count >> 3] |= (char)(1 << (count & 7));
            }
            for (int text = 0; text < TEXTS; packed += row.length[text++]) {
                if (!buffer) {
                    nulls[text] += row.null[text];
                    bytes[text] += row.length[text];
                    continue;
                }
                char **at = buffer + TEXTS_AT + 3 * text;
                if (nulls[text] && !row.null[text]) at[0][count >> 3] |= (char)(1 << (count & 7));
                memcpy(at[2] + ends[text], packed, row.length[text]);
                ends[text] += row.length[text];
                const int32_t until = (int32_t)ends[text], zero = 0;
                if (!count) memcpy(at[1], &zero, 4);
                memcpy(at[1] + 4 * (count + 1), &until, 4);
            }
        }
    }
    return count;
}

static PyObject *join(PyObject *self, PyObject *args) {
    PyObject *parts, *allocate;
    const char *head;
    Py_ssize_t head_bytes, at[4];
    if (!PyArg_ParseTuple(args, "O!y#(nnnn)O", &PyList_Type, &parts, &head, &head_bytes, &at[0], &at[1], &at[2], &at[3],
                          &allocate))
        return NULL;
    int64_t nulls[TEXTS] = {0}, bytes[TEXTS] = {0}, size[BUFFERS];
    const int64_t rows = each_row(parts, nulls, bytes, NULL);
    if (rows < 0) return NULL;
    for (int text = 0; text < TEXTS; text++)
        if (bytes[text] > INT32_MAX || !rows) return PyErr_Format(PyExc_ValueError, "no rows, or too many"), NULL;
    const size_t body_bytes = lay_out(rows, nulls, bytes, size);
    Py_buffer view;
    char *buffer[BUFFERS];
    PyObject *made = PyObject_CallFunction(allocate, "n", (Py_ssize_t)(head_bytes + body_bytes));
    if (!made || PyObject_GetBuffer(made, &view, PyBUF_WRITABLE)) return Py_XDECREF(made), NULL;
    put_head(view.buf, head, head_bytes, at, rows, nulls, size, body_bytes, buffer);
    each_row(parts, nulls, bytes, buffer);
    PyBuffer_Release(&view);
    return made;
}

static int say_layout(PyObject *module) { return PyModule_AddStringConstant(module, "LAYOUT", LAYOUT); }
static PyMethodDef methods[] = {
    {"find", find, METH_VARARGS, NULL}, {"join", join, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyModuleDef_Slot slots[] = {{Py_mod_exec, say_layout}, {0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "tailrace.log._pick", NULL, 0, methods, slots};
PyMODINIT_FUNC PyInit__pick(void) { return PyModuleDef_Init(&module); }
