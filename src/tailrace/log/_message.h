/* The Arrow message that is the payload of a frame: a head, given as a template that Arrow made, and a body of 28
   buffers, each padded to 8 bytes: validity and values of six columns of numbers; validity, offsets and bytes of four
   texts; validity and values of two columns. `at` says where in the head are the length of the body, the number of rows,
   rows and nulls of each column, and place and size of each buffer. */

#ifndef TAILRACE_MESSAGE_H
#define TAILRACE_MESSAGE_H

#include <stdint.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the log is little-endian, and so must be the machine"
#endif

enum { COLUMNS = 12, BUFFERS = 28, TEXTS = 4, FIRST_TEXT = 6 }; /* key, before, after, position */
enum { OFFSET_AT = 1, INDEX_AT = 3, TIME_AT = 5, TXID_AT = 7, OP_AT = 9, SCHEMA_AT = 11, TEXTS_AT = 12 };
enum { POSITION_AT = 21, HLC_AT = 25, MIGRATION_AT = 27 }; /* of texts: validity, the offsets next, then the bytes */
#define MESSAGE_COLUMNS "offset index commit_time_us txid op schema key before after position hlc migration"

static size_t padded(size_t size) { return (size + 7) & ~(size_t)7; }

/* Fill the sizes of the buffers, given nulls and bytes of each text; return that of the body. */
static size_t lay_out(int64_t rows, const int64_t nulls[TEXTS], const int64_t bytes[TEXTS], int64_t size[BUFFERS]) {
    const int64_t bits = (rows + 7) / 8;
    memset(size, 0, BUFFERS * sizeof(int64_t));
    size[OFFSET_AT] = size[INDEX_AT] = size[TIME_AT] = size[TXID_AT] = size[HLC_AT] = 8 * rows;
    size[OP_AT] = rows, size[SCHEMA_AT] = 4 * rows, size[MIGRATION_AT] = bits;
    for (int i = 0; i < TEXTS; i++) {
        int64_t *text = size + TEXTS_AT + 3 * i;
        text[0] = nulls[i] ? bits : 0;
        text[1] = 4 * (rows + 1);
        text[2] = bytes[i];
    }
    size_t body = 0;
    for (int i = 0; i < BUFFERS; i++) body += padded(size[i]);
    return body;
}

/* Write the head, and zeros where nothing else will write; fill `buffer` with the place of each. */
static void put_head(char *message, const char *head, size_t head_bytes, const Py_ssize_t at[4], int64_t rows,
                     const int64_t nulls[TEXTS], const int64_t size[BUFFERS], int64_t body_bytes,
                     char *buffer[BUFFERS]) {
    memcpy(message, head, head_bytes);
    memcpy(message + at[0], &body_bytes, 8);
    memcpy(message + at[1], &rows, 8);
    for (int i = 0; i < COLUMNS; i++) {
        const int64_t absent = i < FIRST_TEXT || i >= FIRST_TEXT + TEXTS ? 0 : nulls[i - FIRST_TEXT];
        memcpy(message + at[2] + 16 * i, &rows, 8);
        memcpy(message + at[2] + 16 * i + 8, &absent, 8);
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
}

#endif
