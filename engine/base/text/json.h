/* json - a small strict reader of JSON (RFC 8259) into a tree.
 *
 * The engine reads model files with it, and the server its configuration; it needs only
 * libc.  It parses a whole file into the caller's arena.  Every value has its line and
 * column, so that an error sentence can say where the file is wrong.
 *
 *   VX_TRY(vx_json_parse(text, bytes, &arena, &why, &root));
 *   VX_TRY(vx_json_check_kind(root, VX_JSON_OBJECT, &why));
 *   VX_JSON_EACH(member, root) { ...member->key, member->kind... }
 *   const struct vx_json *port = vx_json_find(root, "port");
 *   if (port) VX_TRY(vx_json_read_i64(port, 0, 65535, &why, &number));
 *
 * Stricter than the RFC: no duplicate keys in an object, no NUL inside a text (so every
 * text is a C string), no byte-order mark, no number too large for a double.
 *
 * Owner    the tree and its texts live in the arena; the source text is not needed later.
 * Thread   any; no state outside the arena.
 * Limits   VX_JSON_DEPTH_MAX, VX_JSON_NUMBER_BYTES_MAX; an arena of vx_json_arena_bytes
 *          is never full.
 * Fails    INVALID_ARGUMENT with "line L, column C: expected ..., got ..." in the why;
 *          RESOURCE_EXHAUSTED when the arena is full; INTERNAL when the process's locale
 *          has a decimal point other than '.'.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_JSON_H
#define VX_ENGINE_BASE_JSON_H

#include "engine/base/memory/arena.h"
#include "engine/base/status.h"

/* Levels of nested objects and lists: our deepest file has 5; parsing recurses. */
#define VX_JSON_DEPTH_MAX 32

/* Characters of one number: a double needs at most 24, and no program writes more than 4
 * times that. */
#define VX_JSON_NUMBER_BYTES_MAX 100

enum vx_json_kind {
    VX_JSON_NULL,
    VX_JSON_BOOL,
    VX_JSON_I64, /* written without '.' and exponent, and fits an i64 */
    VX_JSON_F64, /* any other number */
    VX_JSON_TEXT,
    VX_JSON_LIST,
    VX_JSON_OBJECT,
};

/* One value, read-only.  Children are in the order of the file. */
struct vx_json {
    enum vx_json_kind kind;
    i32 line, column; /* where the value begins; both from 1, columns in bytes */
    i32 count;        /* TEXT: bytes without the NUL; LIST, OBJECT: children */
    const char *key;  /* the member's key; NULL unless the parent is an object */
    const struct vx_json *next; /* the next child of the same parent */
    union {
        bool boolean;
        i64 number;
        f64 real;
        const char *text;
        struct {
            const struct vx_json *first;
            const struct vx_json **by_key; /* OBJECT: all members, sorted by key */
        };
    };
};

/* Loops over the children of `parent`, which must be a list or an object. */
#define VX_JSON_EACH(child_, parent_)                                                    \
    for (const struct vx_json *child_ = (parent_)->first; child_; child_ = child_->next)

/* The most arena bytes that parsing a text of `text_bytes` can need. */
size_t vx_json_arena_bytes(size_t text_bytes);

VX_MUST_USE vx_status vx_json_parse(const char *text, size_t bytes,
                                    struct vx_arena *arena, struct vx_why *why,
                                    const struct vx_json **root);

/* The member of that name, or NULL.  `object` must be an OBJECT. */
const struct vx_json *vx_json_find(const struct vx_json *object, const char *key);

/* Reads a whole number; false when the value is none.  3.0 counts as 3: programs that
 * hold the number as a double write it so. */
bool vx_json_whole(const struct vx_json *value, i64 *number);

/* "an object", "an integer", ... for error sentences. */
const char *vx_json_kind_name(enum vx_json_kind kind);

/* These fail with INVALID_ARGUMENT and a why that names the place, the key, what was
 * expected and what was found.  Where an integer is expected, 3.0 is taken for 3 although
 * its kind is F64 (vx_json_whole). */
VX_MUST_USE vx_status vx_json_check_kind(const struct vx_json *value,
                                         enum vx_json_kind kind, struct vx_why *why);
VX_MUST_USE vx_status vx_json_read_bool(const struct vx_json *value, struct vx_why *why,
                                        bool *boolean);
VX_MUST_USE vx_status vx_json_read_i64(const struct vx_json *value, i64 min, i64 max,
                                       struct vx_why *why, i64 *number);
/* A power of two, 2^-most to 2^most.  Also takes an integer. */
VX_MUST_USE vx_status vx_json_read_power(const struct vx_json *value, int most,
                                         struct vx_why *why, f64 *number);
/* Also takes an integer. */
VX_MUST_USE vx_status vx_json_read_f64(const struct vx_json *value, f64 min, f64 max,
                                       struct vx_why *why, f64 *number);
VX_MUST_USE vx_status vx_json_read_text(const struct vx_json *value, struct vx_why *why,
                                        const char **text);
/* Copies a text of 1 to bytes - 1 bytes into `out`. */
VX_MUST_USE vx_status vx_json_read_name(const struct vx_json *value, struct vx_why *why,
                                        char *out, size_t bytes);

#endif
