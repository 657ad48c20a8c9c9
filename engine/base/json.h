/* json - a small strict reader of JSON (RFC 8259) into a tree.
 *
 * The engine reads model files with libc alone, and the server its configuration with the
 * same reader.  A file is parsed whole into the caller's arena; every value knows its
 * line and column, so that whoever reads the tree can say where a thing is wrong, not
 * only what.
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
 * Owner    the tree and its texts live in the arena; the source text may go after parse.
 * Thread   any; no state outside the arena.
 * Limits   VX_JSON_DEPTH_MAX, VX_JSON_NUMBER_BYTES_MAX; vx_json_arena_bytes is enough.
 * Fails    INVALID_ARGUMENT with "line L, column C: expected ..., got ..." in the why;
 *          RESOURCE_EXHAUSTED when the arena is full.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_JSON_H
#define VX_ENGINE_BASE_JSON_H

#include "engine/base/arena.h"
#include "engine/base/status.h"

/* Objects and lists inside each other: our deepest file has 5; parsing recurses this
 * deep. */
#define VX_JSON_DEPTH_MAX 32

/* Characters of one number: a double written in full needs 24, nobody writes more than 4
 * times that. */
#define VX_JSON_NUMBER_BYTES_MAX 100

enum vx_json_kind {
    VX_JSON_NULL,
    VX_JSON_BOOL,
    VX_JSON_I64, /* written without '.' or exponent, and fits */
    VX_JSON_F64, /* any other number */
    VX_JSON_TEXT,
    VX_JSON_LIST,
    VX_JSON_OBJECT,
};

/* One value.  Read-only; members and elements in the order of the file. */
struct vx_json {
    enum vx_json_kind kind;
    i32 line, column;           /* where it begins, from 1; columns count bytes */
    i32 count;                  /* TEXT: bytes without the NUL; LIST, OBJECT: children */
    const char *key;            /* of a member of an object, else NULL */
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

/* Every child of a list or object; none for other kinds is the caller's to check. */
#define VX_JSON_EACH(child_, parent_)                                                    \
    for (const struct vx_json *child_ = (parent_)->first; child_; child_ = child_->next)

/* Arena bytes that parsing `text_bytes` of any text can need. */
size_t vx_json_arena_bytes(size_t text_bytes);

VX_MUST_USE vx_status vx_json_parse(const char *text, size_t bytes,
                                    struct vx_arena *arena, struct vx_why *why,
                                    const struct vx_json **root);

/* The member of that name, or NULL.  `object` must be an OBJECT. */
const struct vx_json *vx_json_find(const struct vx_json *object, const char *key);

/* False when it is no whole number.  3.0 is one: programs write what they have as a double so. */
bool vx_json_whole(const struct vx_json *value, i64 *number);

/* "an object", "an integer", ... for sentences. */
const char *vx_json_kind_name(enum vx_json_kind kind);

/* All of these take 3.0 for the integer 3, whose kind it does not have (vx_json_whole), and fail with INVALID_ARGUMENT and a why that names place, key, what was
 * expected and what came. */
VX_MUST_USE vx_status vx_json_check_kind(const struct vx_json *value,
                                         enum vx_json_kind kind, struct vx_why *why);
VX_MUST_USE vx_status vx_json_read_bool(const struct vx_json *value, struct vx_why *why,
                                        bool *boolean);
VX_MUST_USE vx_status vx_json_read_i64(const struct vx_json *value, i64 min, i64 max,
                                       struct vx_why *why, i64 *number);
/* Takes an integer too. */
VX_MUST_USE vx_status vx_json_read_f64(const struct vx_json *value, f64 min, f64 max,
                                       struct vx_why *why, f64 *number);
VX_MUST_USE vx_status vx_json_read_text(const struct vx_json *value, struct vx_why *why,
                                        const char **text);
/* Copies a text of 1 to bytes - 1 bytes into `out`. */
VX_MUST_USE vx_status vx_json_read_name(const struct vx_json *value, struct vx_why *why,
                                        char *out, size_t bytes);

#endif
