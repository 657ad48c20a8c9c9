/* status - one result type for every error that comes from outside.
 *
 * A status is one pointer to a static record: it needs no allocation, a debugger shows
 * its file and line, and it crosses threads as it is and processes as its code.  Names
 * and numbers go into a `vx_why`, a small buffer of the caller, so that a client reads
 * what was expected and what was found.
 *
 *   vx_status load(const char *path, struct vx_why *why)
 *   {
 *       VX_TRY(file_open(path, why, &file));
 *       VX_ENSURE_WHY(file.bytes <= MAX, why, RESOURCE_EXHAUSTED, "file too large",
 *                     "%s: expected at most %zu bytes, got %zu", path, MAX, file.bytes);
 *       return VX_OK;
 *   }
 *
 * Owner    records are static; the caller owns the vx_why.
 * Thread   any.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_STATUS_H
#define VX_ENGINE_BASE_STATUS_H

#include "engine/base/types.h"

enum vx_code {
    VX_CODE_OK = 0,
#define VX_ROW(name_, grpc_, meaning_) VX_CODE_##name_ = (grpc_),
#include "engine/base/status.def"
#undef VX_ROW
};

struct vx_fault {
    enum vx_code code;
    const char *text; /* a sentence about what was expected; static */
    const char *file;
    int line;
};

typedef struct {
    const struct vx_fault *fault; /* NULL = success */
} vx_status;

#define VX_OK ((vx_status){NULL})

/* The sentence of one error: names and numbers, cut to fit, always terminated.  It is
 * valid UTF-8, whatever bytes it names: vx_why_set and sentence.h are all that write it. */
#define VX_WHY_BYTES 256
struct vx_why {
    char text[VX_WHY_BYTES];
};

/* `why` may be NULL. */
VX_PRINTF(2, 3) void vx_why_set(struct vx_why *why, const char *format, ...);

/* The sentence for a client: the why, or the static text without one; "" for VX_OK. */
const char *vx_status_text(vx_status status, const struct vx_why *why);
enum vx_code vx_status_code(vx_status status);
const char *vx_code_name(enum vx_code code);
/* A status with a code that another process sent, since pointers are only valid in the
 * process that made them.  An unknown code becomes INTERNAL. */
VX_MUST_USE vx_status vx_status_of_code(enum vx_code code);

/* These six are the only macros that hide control flow. */
#define VX_FAIL(code_, text_)                                                            \
    do {                                                                                 \
        static const struct vx_fault fault_ = {VX_CODE_##code_, (text_), __FILE__,       \
                                               __LINE__};                                \
        return (vx_status){&fault_};                                                     \
    } while (0)
#define VX_FAIL_WHY(why_, code_, text_, ...)                                             \
    do {                                                                                 \
        vx_why_set((why_), __VA_ARGS__);                                                 \
        VX_FAIL(code_, text_);                                                           \
    } while (0)
#define VX_ENSURE(cond_, code_, text_)                                                   \
    do {                                                                                 \
        if (!(cond_)) VX_FAIL(code_, text_);                                             \
    } while (0)
#define VX_ENSURE_WHY(cond_, why_, code_, text_, ...)                                    \
    do {                                                                                 \
        if (!(cond_)) VX_FAIL_WHY(why_, code_, text_, __VA_ARGS__);                      \
    } while (0)
#define VX_TRY(call_)                                                                    \
    do {                                                                                 \
        vx_status st_ = (call_);                                                         \
        if (st_.fault) return st_;                                                       \
    } while (0)
#define VX_TRY_OR(st_, label_, call_)                                                    \
    do {                                                                                 \
        (st_) = (call_);                                                                 \
        if ((st_).fault) goto label_;                                                    \
    } while (0)

#endif
