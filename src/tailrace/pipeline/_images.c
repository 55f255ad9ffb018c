/* Row images as columns, in one pass over their JSON: what `tailrace.pipeline.typed` does with DuckDB and Arrow.
   Optional, like `tailrace/log/_payload.c`; docs/decisions/compiled-helper.md says when and why.
   Only the stable interface of Python 3.11 is used, so one build serves every later version.

   An image is a JSON object without spaces, its members in the order of the table's columns, some perhaps missing. A
   column comes as a tuple (bytes before its value: the name with quotation marks and a colon; form). It is given back as
     (values, texts or None, validity or None, nulls, left or None)
   in Arrow's layout: `values` are numbers or bits, or where texts begin and end. `left` tells by bits which cells are of
   another form than the column's and mean nothing here: the caller reads those images again, in the way that knows all
   forms. An image that is not as above is left in every column. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SKIPPED, INT64, FLOAT64, BOOL, TEXT, BASE64, DIGITS };
#define LAYOUT "skipped int64 float64 bool text base64 digits"
enum { COLUMNS_MAX = 4096, EXACT_DIGITS_MAX = 18, PLAIN_DIGITS_MAX = 15, TEXT_ROOM = 16 };
#define EXACT_FLOAT_MAX (1LL << 53)
#define UNLOCKED_BYTES_MIN (64 * 1024) /* below this, to wait for the lock again would cost more than to keep it */

typedef struct {
    const char *name;
    Py_ssize_t name_size;
    int form;
    char *values;
    uint8_t *validity, *left; /* `left` is NULL before the first */
    char *text;
    Py_ssize_t text_size, text_room, row; /* `row`: the last one that has a cell, from 1 */
} Column;

typedef struct {
    Py_ssize_t count, columns;
    Column *column;
    int whole, failed; /* no image lacks a column; no memory is left */
} Plan;

static void let_go(Plan *plan) {
    for (Py_ssize_t i = 0; plan->column && i < plan->columns; i++) {
        Column *column = &plan->column[i];
        free(column->values), free(column->validity), free(column->left), free(column->text);
    }
    free(plan->column);
}

static int is_text(const Column *column) {
    return column->form == TEXT || column->form == BASE64 || column->form == DIGITS;
}

static void set_bit(uint8_t *bits, Py_ssize_t row) { bits[row >> 3] |= (uint8_t)(1 << (row & 7)); }

static void leave(Plan *plan, Column *column, Py_ssize_t row) {
    if (column->form == SKIPPED) return;
    if (!column->left && !(column->left = calloc((plan->count + 7) / 8, 1))) plan->failed = 1;
    if (column->left) set_bit(column->left, row);
}

/* Return room for a text of this size at the end of a column; NULL where there is none. */
static char *room_for(Plan *plan, Column *column, Py_ssize_t size) {
    if (column->text_size + size > column->text_room) {
        Py_ssize_t room = 2 * column->text_room + size;
        char *text = realloc(column->text, room);
        if (!text) {
            plan->failed = 1;
            return NULL;
        }
        column->text = text, column->text_room = room;
    }
    return column->text + column->text_size;
}

/* Return the quotation mark that ends a string, given what follows the one that begins it; NULL where there is none. */
static const char *string_end(const char *at, const char *end, int *escaped) {
    for (const char *from = at;;) {
        const char *quote = memchr(from, '"', end - from);
        if (!quote) return NULL;
        const char *first = quote;
        while (first > at && first[-1] == '\\') first--;
        if (!((quote - first) & 1)) {
            *escaped = first < quote || memchr(at, '\\', quote - at) != NULL;
            return quote;
        }
        from = quote + 1;
    }
}

/* Return where a value ends; NULL where it does not. Commas and brackets inside of strings are not looked at. */
static const char *value_end(const char *at, const char *end) {
    int depth = 0, escaped;
    for (; at < end; at++) {
        switch (*at) {
            case '"':
                if (!(at = string_end(at + 1, end, &escaped))) return NULL;
                break;
            case '{': case '[':
                depth++;
                break;
            case '}': case ']':
                if (!depth) return at;
                depth--;
                break;
            case ',':
                if (!depth) return at;
                break;
        }
    }
    return NULL;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Read four hexadecimal digits; -1 where there are none. */
static int32_t code_unit(const char *at, const char *end) {
    int32_t unit = 0;
    if (end - at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        const int digit = hex_digit(at[i]);
        if (digit < 0) return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

/* Write the text of a string with escapes; return where it ends, NULL where an escape means no character. */
static char *unescaped(char *to, const char *at, const char *end) {
    while (at < end) {
        if (*at != '\\') {
            *to++ = *at++;
            continue;
        }
        static const char marks[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
        const char mark = at[1], *found = mark ? strchr(marks, mark) : NULL;
        at += 2;
        if (found) {
            *to++ = meant[found - marks];
            continue;
        }
        int32_t code = mark == 'u' ? code_unit(at, end) : -1;
        at += 4;
        if (code >= 0xD800 && code < 0xDC00 && end - at >= 6 && at[0] == '\\' && at[1] == 'u') {
            const int32_t low = code_unit(at + 2, end);
            if (low < 0xDC00 || low > 0xDFFF) return NULL;
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            at += 6;
        }
        if (code <= 0 || (code >= 0xD800 && code <= 0xDFFF)) return NULL; /* Arrow has texts with zeros, others do not */
        if (code < 0x80) *to++ = (char)code;
        else if (code < 0x800) *to++ = (char)(0xC0 | code >> 6), *to++ = (char)(0x80 | (code & 0x3F));
        else {
            if (code < 0x10000) *to++ = (char)(0xE0 | code >> 12);
            else *to++ = (char)(0xF0 | code >> 18), *to++ = (char)(0x80 | (code >> 12 & 0x3F));
            *to++ = (char)(0x80 | (code >> 6 & 0x3F)), *to++ = (char)(0x80 | (code & 0x3F));
        }
    }
    return to;
}

/* Digits of base64 by character, from 1; 0 for a character that is none. */
static uint8_t base64_digits[256];

static void know_base64(void) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (int i = 0; i < 64; i++) base64_digits[(uint8_t)digits[i]] = (uint8_t)(i + 1);
}

/* Write the bytes of a base64 text; return where they end, NULL where it is none. */
static char *unpacked(char *to, const char *at, const char *end) {
    if ((end - at) & 3) return NULL;
    for (; at < end; at += 4) {
        const int padded = at + 4 == end && at[3] == '=' ? 1 + (at[2] == '=') : 0;
        uint32_t bits = 0;
        for (int i = 0; i < 4; i++) {
            const int digit = i >= 4 - padded ? 1 : base64_digits[(uint8_t)at[i]];
            if (!digit) return NULL;
            bits = bits << 6 | (uint32_t)(digit - 1);
        }
        if (bits & ((1u << 8 * padded) - 1)) return NULL; /* what is cut off is not zero */
        for (int i = 0; i < 3 - padded; i++) *to++ = (char)(bits >> (16 - 8 * i));
    }
    return to;
}

/* A number as it is written. `whole`: without a point and an exponent. */
typedef struct {
    uint64_t digits; /* as many as fit exactly, which `exact` tells */
    int negative, whole, exact, count, exponent;
} Number;

/* Read a number; return where it ends, NULL where there is none. */
static const char *read_number(Number *number, const char *at, const char *end) {
    const char *begin;
    memset(number, 0, sizeof(*number));
    number->whole = number->exact = 1;
    if (at < end && *at == '-') number->negative = 1, at++;
    for (begin = at; at < end && *at >= '0' && *at <= '9'; at++) {
        if (++number->count > EXACT_DIGITS_MAX) number->exact = 0;
        else number->digits = 10 * number->digits + (uint64_t)(*at - '0');
    }
    if (at == begin || (*begin == '0' && at - begin > 1)) return NULL;
    if (at < end && *at == '.') {
        number->whole = 0;
        for (begin = ++at; at < end && *at >= '0' && *at <= '9'; at++) {
            if (++number->count > EXACT_DIGITS_MAX) number->exact = 0;
            else number->digits = 10 * number->digits + (uint64_t)(*at - '0'), number->exponent--;
        }
        if (at == begin) return NULL;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        number->whole = 0;
        int negative = 0, exponent = 0;
        if (++at < end && (*at == '+' || *at == '-')) negative = *at++ == '-';
        for (begin = at; at < end && *at >= '0' && *at <= '9'; at++)
            if (exponent < 100000) exponent = 10 * exponent + (*at - '0');
        if (at == begin) return NULL;
        number->exponent += negative ? -exponent : exponent;
    }
    return at;
}

static int put_float(Column *column, Py_ssize_t row, const Number *number, const char *at, const char *end) {
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    double value;
    if (number->whole && number->negative && !number->digits) return 0; /* a whole zero has no sign */
#if FLT_EVAL_METHOD == 0
    /* Both are exact, so that what is made of them is rounded once. */
    if (number->exact && number->digits < EXACT_FLOAT_MAX && number->exponent >= -22 && number->exponent <= 22) {
        value = (double)number->digits;
        value = number->exponent < 0 ? value / tens[-number->exponent] : value * tens[number->exponent];
        if (number->negative) value = -value;
    } else
#endif
    {
        char *stop;
        value = strtod(at, &stop); /* what follows a number in an image ends it; another locale stops elsewhere */
        if (stop != end || !isfinite(value)) return 0;
        if (number->whole && fabs(value) >= (double)EXACT_FLOAT_MAX) return 0; /* perhaps another one than is written */
    }
    memcpy(column->values + 8 * row, &value, 8);
    return 1;
}

/* Tell whether a number is written as everybody writes it: whole, or a plain fraction of few digits. */
static int is_plain(const Number *number, const char *at, const char *end) {
    if (number->whole) return number->exact && !(number->negative && !number->digits);
    if (number->count > PLAIN_DIGITS_MAX) return 0;
    const char *point = memchr(at, '.', end - at), *fraction = point + 1;
    if (!point || end[-1] < '0' || end[-1] > '9' || memchr(fraction, 'e', end - fraction) ||
        memchr(fraction, 'E', end - fraction))
        return 0;
    if (end[-1] == '0') return end - fraction == 1;
    /* Less than a ten-thousandth is written with an exponent. */
    return point[-1] != '0' || point - at > 1 + number->negative || !(end - fraction > 3 && !memcmp(fraction, "000", 3));
}

/* Take a cell that is a number. */
static int put_number(Plan *plan, Column *column, Py_ssize_t row, const Number *number, const char *at,
                      const char *end) {
    if (column->form == FLOAT64) return put_float(column, row, number, at, end);
    if (column->form == TEXT ? !is_plain(number, at, end) : !number->whole || !number->exact) return 0;
    if (column->form == INT64) {
        const int64_t value = number->negative ? -(int64_t)number->digits : (int64_t)number->digits;
        memcpy(column->values + 8 * row, &value, 8);
        return 1;
    }
    if ((column->form != TEXT && column->form != DIGITS) || (number->negative && !number->digits)) return 0;
    char *text = room_for(plan, column, end - at);
    if (!text) return 0;
    memcpy(text, at, end - at);
    column->text_size += end - at;
    return 1;
}

/* Take a cell that is a string, given what is between its quotation marks. */
static int put_string(Plan *plan, Column *column, const char *at, const char *end, int escaped) {
    char *text = column->form == TEXT || column->form == BASE64 ? room_for(plan, column, end - at) : NULL;
    if (!text) return 0;
    if (column->form == BASE64) {
        char *stop = escaped ? NULL : unpacked(text, at, end);
        if (!stop) return 0;
        column->text_size += stop - text;
    } else if (escaped) {
        char *stop = unescaped(text, at, end);
        if (!stop) return 0;
        column->text_size += stop - text;
    } else {
        memcpy(text, at, end - at);
        column->text_size += end - at;
    }
    return 1;
}

/* Take the cell of a column; return where it ends, NULL where its image is not as expected. */
static const char *put_cell(Plan *plan, Column *column, Py_ssize_t row, const char *at, const char *end) {
    int escaped = 0, taken = 0;
    const char *stop;
    column->row = row + 1;
    if (at == end) return NULL;
    if (*at == '"') {
        if (!(stop = string_end(at + 1, end, &escaped))) return NULL;
        if (column->form != SKIPPED) taken = put_string(plan, column, at + 1, stop, escaped);
        stop++;
    } else if (end - at > 4 && !memcmp(at, "null", 4)) {
        return at + 4;
    } else if (*at == '-' || (*at >= '0' && *at <= '9')) {
        Number number;
        if (!(stop = read_number(&number, at, end)) || stop == end) return NULL; /* strtod needs what ends it */
        if (column->form != SKIPPED) taken = put_number(plan, column, row, &number, at, stop);
    } else {
        if (!(stop = value_end(at, end))) return NULL;
        const int truth = stop - at == 4 && !memcmp(at, "true", 4);
        if (truth || (stop - at == 5 && !memcmp(at, "false", 5))) {
            if (column->form == BOOL) {
                if (truth) set_bit((uint8_t *)column->values, row);
                taken = 1;
            } else if (column->form == TEXT) {
                taken = put_string(plan, column, at, stop, 0);
            }
        }
    }
    if (taken) set_bit(column->validity, row);
    else leave(plan, column, row);
    return stop;
}

/* Return the column whose name stands here, nearly always the expected one; NULL for none. */
static Column *column_at(Plan *plan, Py_ssize_t expected, const char *at, const char *end) {
    for (Py_ssize_t i = expected; i < expected + plan->columns; i++) {
        Column *column = &plan->column[i < plan->columns ? i : i - plan->columns];
        if (end - at >= column->name_size && !memcmp(at, column->name, column->name_size)) return column;
    }
    return NULL;
}

/* Take the cells of an image; return how many there are, -1 where it is not as expected. */
static Py_ssize_t put_image(Plan *plan, Py_ssize_t row, const char *at, const char *end) {
    Py_ssize_t found = 0, expected = 0;
    if (end - at < 2 || *at++ != '{') return -1;
    if (*at == '}') return end - at == 1 ? plan->columns : -1; /* that of a truncation: nothing is missing */
    for (;; at++, found++) {
        Column *column = column_at(plan, expected, at, end);
        if (!column || column->row == row + 1) return -1;
        expected = column - plan->column + 1;
        if (!(at = put_cell(plan, column, row, at + column->name_size, end)) || at == end) return -1;
        if (*at == '}') return end - at == 1 ? found + 1 : -1;
        if (*at != ',') return -1;
    }
}

static void put_images(Plan *plan, const int32_t *offsets, const char *data) {
    for (Py_ssize_t row = 0; row < plan->count && !plan->failed; row++) {
        const int32_t begin = offsets[row], end = offsets[row + 1];
        const Py_ssize_t found = begin >= 0 && begin <= end && end <= offsets[plan->count]
                                     ? put_image(plan, row, data + begin, data + end)
                                     : -1;
        if (found != plan->columns) plan->whole = 0;
        for (Py_ssize_t i = 0; i < plan->columns; i++) {
            Column *column = &plan->column[i];
            if (column->form == SKIPPED) continue;
            if (found < 0) leave(plan, column, row);
            if (is_text(column)) {
                const int32_t size = (int32_t)column->text_size;
                memcpy(column->values + 4 * (row + 1), &size, 4);
            }
        }
    }
}

static int prepare(Plan *plan, PyObject *columns) {
    plan->columns = PyList_Size(columns);
    if (plan->columns < 1 || plan->columns > COLUMNS_MAX) {
        PyErr_SetString(PyExc_ValueError, "images need columns, but not too many");
        return 0;
    }
    if (!(plan->column = calloc(plan->columns, sizeof(Column)))) return 0;
    for (Py_ssize_t i = 0; i < plan->columns; i++) {
        Column *column = &plan->column[i];
        PyObject *given = PyList_GetItem(columns, i);
        if (!PyArg_ParseTuple(given, "y#i", &column->name, &column->name_size, &column->form)) return 0;
        if (!column->name_size || column->form < SKIPPED || column->form > DIGITS) {
            PyErr_SetString(PyExc_ValueError, "a column is malformed");
            return 0;
        }
        if (column->form == SKIPPED) continue;
        const Py_ssize_t bits = (plan->count + 7) / 8;
        column->validity = calloc(bits, 1);
        if (is_text(column)) {
            column->values = calloc(plan->count + 1, 4);
            column->text_room = TEXT_ROOM * plan->count;
            column->text = malloc(column->text_room);
            if (!column->text) return 0;
        } else column->values = calloc(column->form == BOOL ? bits : 8 * plan->count, 1);
        if (!column->values || !column->validity) return 0;
    }
    return 1;
}

static PyObject *bytes_of(const void *data, Py_ssize_t size) {
    if (!data) Py_RETURN_NONE;
    return PyBytes_FromStringAndSize(data, size);
}

/* Return a column, or None for one that was skipped. */
static PyObject *made_of(const Plan *plan, const Column *column) {
    if (column->form == SKIPPED) Py_RETURN_NONE;
    const Py_ssize_t bits = (plan->count + 7) / 8;
    const Py_ssize_t size = is_text(column) ? 4 * (plan->count + 1) : column->form == BOOL ? bits : 8 * plan->count;
    Py_ssize_t there = 0;
    for (Py_ssize_t i = 0; i < bits; i++) there += __builtin_popcount(column->validity[i]);
    const int whole = there == plan->count;
    return Py_BuildValue("(NNNnN)", bytes_of(column->values, size), bytes_of(column->text, column->text_size),
                         bytes_of(whole ? NULL : column->validity, bits), plan->count - there,
                         bytes_of(column->left, bits));
}

/* decode(count, offsets, data, begin, columns) → (columns, whether no image lacks one) */
static PyObject *decode(PyObject *self, PyObject *args) {
    PyObject *offsets_given, *data_given, *columns, *made = NULL, *answer = NULL;
    Py_ssize_t begin;
    Py_buffer offsets_view, data_view;
    Plan plan = {0};
    plan.whole = 1;
    if (!PyArg_ParseTuple(args, "nOOnO!", &plan.count, &offsets_given, &data_given, &begin, &PyList_Type, &columns))
        return NULL;
    if (PyObject_GetBuffer(offsets_given, &offsets_view, PyBUF_SIMPLE)) return NULL;
    if (PyObject_GetBuffer(data_given, &data_view, PyBUF_SIMPLE)) {
        PyBuffer_Release(&offsets_view);
        return NULL;
    }
    const int32_t *offsets = (const int32_t *)offsets_view.buf + begin;
    if (plan.count < 1 || begin < 0 || offsets_view.len < 4 * (begin + plan.count + 1) ||
        offsets[plan.count] > data_view.len) {
        PyErr_SetString(PyExc_ValueError, "a buffer is too short");
        goto end;
    }
    if (!prepare(&plan, columns)) {
        if (!PyErr_Occurred()) PyErr_NoMemory();
        goto end;
    }
    PyThreadState *state = offsets[plan.count] - offsets[0] >= UNLOCKED_BYTES_MIN ? PyEval_SaveThread() : NULL;
    put_images(&plan, offsets, data_view.buf);
    if (state) PyEval_RestoreThread(state);
    if (plan.failed) {
        PyErr_NoMemory();
        goto end;
    }
    if (!(made = PyList_New(plan.columns))) goto end;
    for (Py_ssize_t i = 0; i < plan.columns; i++) {
        PyObject *column = made_of(&plan, &plan.column[i]);
        if (!column) goto end;
        PyList_SetItem(made, i, column);
    }
    answer = PyTuple_Pack(2, made, plan.whole ? Py_True : Py_False);
end:
    Py_XDECREF(made);
    let_go(&plan);
    PyBuffer_Release(&offsets_view);
    PyBuffer_Release(&data_view);
    return answer;
}

static int begin(PyObject *module) {
    know_base64();
    return PyModule_AddStringConstant(module, "LAYOUT", LAYOUT);
}
static PyMethodDef methods[] = {{"decode", decode, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyModuleDef_Slot slots[] = {{Py_mod_exec, begin}, {0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "tailrace.pipeline._images", NULL, 0, methods, slots};
PyMODINIT_FUNC PyInit__images(void) { return PyModuleDef_Init(&module); }
