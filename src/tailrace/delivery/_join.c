/* Events of changes as bytes, joined from Arrow's buffers in one pass: what `tailrace.delivery.join` does with Arrow's
   own functions. Optional, like `tailrace/log/_payload.c`; docs/decisions/compiled-helper.md says when and why.
   Only the stable interface of Python 3.11 is used, so one build serves every later version.

   An event is its parts, one behind the other, for each row. A part comes as a tuple that begins with its kind:
     (SAME, bytes)                                         the same in every event
     (CHOSEN, codes, begin, code bytes, [bytes, …])        one of some values, by a column of 8- or 32-bit numbers
     (DIGITS, numbers, begin, divisor)                     a 64-bit number, divided, in decimal
     (TEXT, validity or None, offsets, data, begin, front) a value with bytes before it; nothing where it is null
   `begin` is the first row within the buffers. A code beyond the values, or 2 GiB of events, give None. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { SAME, CHOSEN, DIGITS, TEXT };
#define LAYOUT "same chosen digits text"
enum { COUNT_MAX = 1 << 24, PARTS_MAX = 32, DIGITS_MAX = 20 };
enum { HEAD_MAX = 10, SHORT_MAX = 125, MIDDLE_MAX = 65535 };
enum { STEP = 32, ROOM = 2 * STEP }; /* what is copied at once, and how far beyond its end that may reach */
#define UNLOCKED_BYTES_MIN (64 * 1024) /* below this, to wait for the lock again would cost more than to keep it */

typedef struct {
    const char *data;
    Py_ssize_t size;
} Bytes;

/* A number as text; those of neighbouring rows are mostly equal or one apart. */
typedef struct {
    const int64_t *numbers;
    int64_t divisor, given, last;
    int size;  /* 0 before the first */
    int count; /* of the parts that show it */
    char text[STEP];
} Number;

typedef struct {
    int kind;
    Bytes same; /* also the front of a text */
    const char *codes;
    int code_bytes;
    const int32_t *offsets;
    Bytes *values;
    Py_ssize_t values_count;
    Number *number;
    const uint8_t *validity;
    const char *data;
    Py_ssize_t begin;
} Part;

typedef struct {
    Py_ssize_t count;
    int parts, numbers, buffers, framed;
    char *padded; /* what is the same in many events, each piece with room behind it */
    Part part[PARTS_MAX];
    Number number[PARTS_MAX];
    Py_buffer buffer[3 * PARTS_MAX];
} Plan;

static void let_go(Plan *plan) {
    for (int i = 0; i < plan->buffers; i++) PyBuffer_Release(&plan->buffer[i]);
    for (int i = 0; i < plan->parts; i++) PyMem_Free(plan->part[i].values);
    PyMem_Free(plan->padded);
    PyMem_Free(plan);
}

/* Return the bytes that an object shows, for as long as the plan is there; NULL on failure. */
static const char *shown(Plan *plan, PyObject *object, Py_ssize_t bytes_min) {
    Py_buffer *view = &plan->buffer[plan->buffers];
    if (PyObject_GetBuffer(object, view, PyBUF_SIMPLE)) return NULL;
    plan->buffers++;
    if (view->len < bytes_min) {
        PyErr_SetString(PyExc_ValueError, "a buffer is too short");
        return NULL;
    }
    return view->buf ? view->buf : "";
}

static int read_values(Part *part, PyObject *values) {
    part->values_count = PyList_Size(values);
    part->values = PyMem_Calloc(part->values_count + 1, sizeof(Bytes));
    if (!part->values) return 0;
    for (Py_ssize_t i = 0; i < part->values_count; i++) {
        Bytes *value = &part->values[i];
        if (PyBytes_AsStringAndSize(PyList_GetItem(values, i), (char **)&value->data, &value->size)) return 0;
    }
    return 1;
}

/* Parts that show the same number share its text. */
static Number *number_of(Plan *plan, const int64_t *numbers, int64_t divisor) {
    for (int i = 0; i < plan->numbers; i++)
        if (plan->number[i].numbers == numbers && plan->number[i].divisor == divisor) {
            plan->number[i].count++;
            return &plan->number[i];
        }
    Number *number = &plan->number[plan->numbers++];
    number->numbers = numbers;
    number->divisor = divisor;
    number->count = 1;
    return number;
}

static char *pad(char *at, Bytes *bytes) {
    if (bytes->size) memcpy(at, bytes->data, bytes->size);
    bytes->data = at;
    return at + bytes->size + STEP;
}

/* Copy what is the same in many events to where more may be read than there is. */
static int pad_all(Plan *plan) {
    Py_ssize_t size = 0;
    for (int i = 0; i < plan->parts; i++) {
        Part *part = &plan->part[i];
        size += part->same.size + STEP;
        for (Py_ssize_t value = 0; value < part->values_count; value++) size += part->values[value].size + STEP;
    }
    char *at = plan->padded = PyMem_Calloc(size, 1);
    if (!at) return 0;
    for (int i = 0; i < plan->parts; i++) {
        Part *part = &plan->part[i];
        at = pad(at, &part->same);
        for (Py_ssize_t value = 0; value < part->values_count; value++) at = pad(at, &part->values[value]);
    }
    return 1;
}

static int read_part(Plan *plan, Part *part, PyObject *given) {
    PyObject *first, *second, *third, *values;
    long long divisor;
    const Py_ssize_t count = plan->count;
    if (!PyTuple_Check(given) || PyTuple_Size(given) < 2) return 0;
    switch (part->kind = (int)PyLong_AsLong(PyTuple_GetItem(given, 0))) {
        case SAME:
            return PyArg_ParseTuple(given, "iy#", &part->kind, &part->same.data, &part->same.size);
        case CHOSEN:
            if (!PyArg_ParseTuple(given, "iOniO!", &part->kind, &first, &part->begin, &part->code_bytes, &PyList_Type,
                                  &values))
                return 0;
            if (part->code_bytes != 1 && part->code_bytes != 4) return 0;
            part->codes = shown(plan, first, part->code_bytes * (part->begin + count));
            return part->codes && read_values(part, values);
        case DIGITS:
            if (!PyArg_ParseTuple(given, "iOnL", &part->kind, &first, &part->begin, &divisor) || divisor < 1) return 0;
            const char *numbers = shown(plan, first, 8 * (part->begin + count));
            if (numbers) part->number = number_of(plan, (const int64_t *)numbers + part->begin, divisor);
            return numbers != NULL;
        case TEXT:
            if (!PyArg_ParseTuple(given, "iOOOny#", &part->kind, &first, &second, &third, &part->begin,
                                  &part->same.data, &part->same.size))
                return 0;
            if (first != Py_None) {
                part->validity = (const uint8_t *)shown(plan, first, (part->begin + count + 7) / 8);
                if (!part->validity) return 0;
            }
            part->offsets = (const int32_t *)shown(plan, second, 4 * (part->begin + count + 1));
            if (!part->offsets) return 0;
            part->data = shown(plan, third, part->offsets[part->begin + count]);
            return part->data != NULL;
        default:
            return 0;
    }
}

/* Count the text of a number on by one; return 0 where that takes another digit. */
static int count_on(Number *number) {
    for (int i = number->size - 1; i >= 0; i--) {
        if (number->text[i] != '9') {
            number->text[i]++;
            return 1;
        }
        number->text[i] = '0';
    }
    return 0;
}

static void turn_to(Number *number, Py_ssize_t row) {
    const int64_t given = number->numbers[row];
    if (number->size && given == number->given) return;
    const int64_t value = number->divisor == 1 ? given : given / number->divisor;
    number->given = given;
    if (number->size && value == number->last) return;
    const int one_more = number->size && number->last >= 0 && value > 0 && value - 1 == number->last;
    number->last = value;
    if (one_more && count_on(number)) return;
    char reversed[DIGITS_MAX];
    int digits = 0;
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do reversed[digits++] = (char)('0' + left % 10);
    while (left /= 10);
    if (value < 0) reversed[digits++] = '-';
    number->size = digits;
    for (int i = 0; i < digits; i++) number->text[i] = reversed[digits - 1 - i];
}

/* Add the size of a number's text, as often as it is shown, to each row. Neighbours mostly have as many digits. */
static void add_digits(const Number *number, int32_t *sizes, Py_ssize_t count) {
    int64_t low = 1, high = 0; /* values between them have this many characters */
    int size = 0;
    for (Py_ssize_t row = 0; row < count; row++) {
        const int64_t given = number->numbers[row];
        if (given < low || given > high) {
            const int64_t value = given / number->divisor;
            uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value, power = 1;
            for (size = 1; left >= 10; size++, left /= 10) power *= 10;
            low = high = given;
            if (value > 0 && power <= (uint64_t)(INT64_MAX / 10 / number->divisor)) {
                low = (int64_t)power * number->divisor;
                high = (int64_t)power * 10 * number->divisor - 1;
            }
            size += value < 0;
        }
        sizes[row] += size * number->count;
    }
}

static int is_there(const Part *part, Py_ssize_t row) {
    const Py_ssize_t at = part->begin + row;
    return !part->validity || part->validity[at >> 3] >> (at & 7) & 1;
}

/* The size of the head of a text, and of a frame as a whole. */
static int head_size(Py_ssize_t size) { return size <= SHORT_MAX ? 2 : size <= MIDDLE_MAX ? 4 : HEAD_MAX; }
static int head_within(Py_ssize_t size) { return size <= SHORT_MAX + 2 ? 2 : size <= MIDDLE_MAX + 4 ? 4 : HEAD_MAX; }

/* Write the head of a WebSocket text frame; see `tailrace/delivery/frame.py`. */
static char *put_head(char *at, Py_ssize_t size) {
    const int head = head_size(size);
    at[0] = (char)0x81;
    at[1] = (char)(head == 2 ? size : head == 4 ? 126 : 127);
    for (int i = head - 1; i >= 2; i--, size >>= 8) at[i] = (char)(size & 0xFF);
    return at + head;
}

/* Return the value that a row has chosen; NULL where there is no such value. */
static const Bytes *chosen(const Part *part, Py_ssize_t row) {
    const Py_ssize_t at = part->begin + row;
    const int32_t code = part->code_bytes == 1 ? ((const int8_t *)part->codes)[at] : ((const int32_t *)part->codes)[at];
    return code < 0 || code >= part->values_count ? NULL : &part->values[code];
}

/* Add the size of the value that each row has chosen; return 0 where there is no such value. */
static int add_chosen(const Part *part, int32_t *sizes, Py_ssize_t count) {
    for (Py_ssize_t row = 0; row < count; row++) {
        const Bytes *value = chosen(part, row);
        if (!value) return 0;
        sizes[row] += (int32_t)value->size;
    }
    return 1;
}

static void add_text(const Part *part, int32_t *sizes, Py_ssize_t count) {
    const int32_t *offset = part->offsets + part->begin, front = (int32_t)part->same.size;
    if (part->validity)
        for (Py_ssize_t row = 0; row < count; row++)
            sizes[row] += is_there(part, row) ? front + offset[row + 1] - offset[row] : 0;
    else
        for (Py_ssize_t row = 0; row < count; row++) sizes[row] += front + offset[row + 1] - offset[row];
}

/* The most that one event may have, and all texts together; so sums of sizes stay within 32 bits. */
static int is_too_much(const Plan *plan) {
    int64_t row = plan->framed ? HEAD_MAX : 0, texts = 0;
    for (int i = 0; i < plan->parts; i++) {
        const Part *part = &plan->part[i];
        int64_t most = part->kind == DIGITS ? DIGITS_MAX : part->same.size;
        for (Py_ssize_t value = 0; value < part->values_count; value++)
            if (part->values[value].size > most) most = part->values[value].size;
        if (part->kind == TEXT)
            texts += (int64_t)part->offsets[part->begin + plan->count] - part->offsets[part->begin];
        row += most;
    }
    return row > INT32_MAX / 2 || row * plan->count + texts > INT32_MAX;
}

/* Fill in where each event ends, part by part and then row by row; return the size of all, -1 where a code has no
   value or there is too much. */
static int64_t measure(Plan *plan, int32_t *ends) {
    int32_t same = 0, *sizes = ends + 1;
    if (is_too_much(plan)) return -1;
    for (int i = 0; i < plan->parts; i++) same += plan->part[i].kind == SAME ? (int32_t)plan->part[i].same.size : 0;
    ends[0] = 0;
    for (Py_ssize_t row = 0; row < plan->count; row++) sizes[row] = same;
    for (int i = 0; i < plan->numbers; i++) add_digits(&plan->number[i], sizes, plan->count);
    for (int i = 0; i < plan->parts; i++) {
        const Part *part = &plan->part[i];
        if (part->kind == TEXT) add_text(part, sizes, plan->count);
        else if (part->kind == CHOSEN && !add_chosen(part, sizes, plan->count)) return -1;
    }
    int32_t total = 0;
    for (Py_ssize_t row = 0; row < plan->count; row++) {
        total += sizes[row] + (plan->framed ? head_size(sizes[row]) : 0);
        sizes[row] = total;
    }
    return total;
}

/* Two ways to copy. One knows that there is room behind what it reads and writes, and copies whole steps, for which no
   function is called; the other is for the last events, which end where their memory does. */
static inline char *put_padded(char *at, const char *data, Py_ssize_t size, int roomy) {
    if (!roomy) memcpy(at, data, size);
    else
        for (Py_ssize_t done = 0; done < size; done += STEP) memcpy(at + done, data + done, STEP);
    return at + size;
}

/* Nothing is read beyond the end of a text: its last step overlaps the one before it. */
static inline char *put_text(char *at, const char *data, Py_ssize_t size, int roomy) {
    if (!roomy || size > 16 * STEP) memcpy(at, data, size);
    else if (size >= STEP) {
        for (Py_ssize_t done = 0; done + STEP < size; done += STEP) memcpy(at + done, data + done, STEP);
        memcpy(at + size - STEP, data + size - STEP, STEP);
    } else if (size >= 8) {
        for (Py_ssize_t done = 0; done + 8 < size; done += 8) memcpy(at + done, data + done, 8);
        memcpy(at + size - 8, data + size - 8, 8);
    } else
        for (Py_ssize_t done = 0; done < size; done++) at[done] = data[done];
    return at + size;
}

static inline void write_event(Plan *plan, char *at, Py_ssize_t row, Py_ssize_t size, int roomy) {
    if (plan->framed) at = put_head(at, size - head_within(size));
    for (int i = 0; i < plan->numbers; i++) turn_to(&plan->number[i], row);
    for (int i = 0; i < plan->parts; i++) {
        const Part *part = &plan->part[i];
        if (part->kind == SAME) at = put_padded(at, part->same.data, part->same.size, roomy);
        else if (part->kind == DIGITS) at = put_padded(at, part->number->text, part->number->size, roomy);
        else if (part->kind == CHOSEN) {
            const Bytes *value = chosen(part, row);
            at = put_padded(at, value->data, value->size, roomy);
        } else if (is_there(part, row)) {
            const int32_t *offset = part->offsets + part->begin + row;
            at = put_padded(at, part->same.data, part->same.size, roomy);
            at = put_text(at, part->data + offset[0], offset[1] - offset[0], roomy);
        }
    }
}

static void write_events(Plan *plan, char *begin, const int32_t *ends) {
    Py_ssize_t row = 0;
    for (; row < plan->count && ends[row + 1] <= ends[plan->count] - ROOM; row++)
        write_event(plan, begin + ends[row], row, ends[row + 1] - ends[row], 1);
    for (; row < plan->count; row++) write_event(plan, begin + ends[row], row, ends[row + 1] - ends[row], 0);
}

/* Return the events, and where each begins and ends as 32-bit numbers, one more than there are. Measuring keeps the
   lock: it is short, and to wait for the lock again, for the memory, would take longer. */
static PyObject *written(Plan *plan) {
    PyObject *ends = PyBytes_FromStringAndSize(NULL, sizeof(int32_t) * (plan->count + 1)), *data, *made = NULL;
    if (!ends) return NULL;
    int32_t *places = (int32_t *)PyBytes_AsString(ends);
    const int64_t size = measure(plan, places);
    if (size < 0) {
        Py_DECREF(ends);
        Py_RETURN_NONE;
    }
    data = PyBytes_FromStringAndSize(NULL, size);
    if (data) {
        char *begin = PyBytes_AsString(data);
        PyThreadState *state = size >= UNLOCKED_BYTES_MIN ? PyEval_SaveThread() : NULL;
        write_events(plan, begin, places);
        if (state) PyEval_RestoreThread(state);
        made = PyTuple_Pack(2, data, ends);
        Py_DECREF(data);
    }
    Py_DECREF(ends);
    return made;
}

static PyObject *join(PyObject *self, PyObject *args) {
    PyObject *parts, *made = NULL;
    Plan *plan = PyMem_Calloc(1, sizeof(Plan));
    if (!plan) return PyErr_NoMemory();
    if (!PyArg_ParseTuple(args, "nO!p", &plan->count, &PyList_Type, &parts, &plan->framed)) goto end;
    const Py_ssize_t given = PyList_Size(parts);
    if (plan->count < 1 || plan->count > COUNT_MAX || given < 1 || given > PARTS_MAX) {
        PyErr_SetString(PyExc_ValueError, "events need rows and parts, but not too many");
        goto end;
    }
    while (plan->parts < given) {
        Part *part = &plan->part[plan->parts];
        if (!read_part(plan, part, PyList_GetItem(parts, plan->parts++))) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a part is malformed");
            goto end;
        }
    }
    if (pad_all(plan)) made = written(plan);
    else PyErr_NoMemory();
end:
    let_go(plan);
    return made;
}

/* Tell whether some bytes, of which the first is rare, stand between two places of a buffer. */
static PyObject *contains(PyObject *self, PyObject *args) {
    PyObject *object;
    Py_buffer view;
    Py_ssize_t begin, end, size;
    const char *sought;
    if (!PyArg_ParseTuple(args, "Onny#", &object, &begin, &end, &sought, &size)) return NULL;
    if (PyObject_GetBuffer(object, &view, PyBUF_SIMPLE)) return NULL;
    if (begin < 0 || end < begin || end > view.len || size < 1) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ValueError, "no such bytes");
        return NULL;
    }
    PyThreadState *state = end - begin >= UNLOCKED_BYTES_MIN ? PyEval_SaveThread() : NULL;
    const char *at = (const char *)view.buf + begin, *stop = (const char *)view.buf + end;
    int found = 0;
    while (!found && stop - at >= size && (at = memchr(at, sought[0], stop - at - size + 1)) != NULL)
        found = !memcmp(at++, sought, size);
    if (state) PyEval_RestoreThread(state);
    PyBuffer_Release(&view);
    return PyBool_FromLong(found);
}

static int say_layout(PyObject *module) { return PyModule_AddStringConstant(module, "LAYOUT", LAYOUT); }
static PyMethodDef methods[] = {
    {"join", join, METH_VARARGS, NULL}, {"contains", contains, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyModuleDef_Slot slots[] = {{Py_mod_exec, say_layout}, {0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "tailrace.delivery._join", NULL, 0, methods, slots};
PyMODINIT_FUNC PyInit__join(void) { return PyModuleDef_Init(&module); }
