/* SPDX-License-Identifier: Apache-2.0 */
#include "server/metrics/failures.h"

#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"

#include <ctype.h>
#include <string.h>

void vx_failures_init(struct vx_failures *failures)
{
    failures->ids = 0;
    failures->count = 0;
    VX_ASSERT(!pthread_mutex_init(&failures->lock, NULL));
}

void vx_failures_fini(struct vx_failures *failures)
{
    VX_ASSERT(!pthread_mutex_destroy(&failures->lock));
}

/* FNV-1a of the text. */
static u64 hash_text(u64 hash, const char *text)
{
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return (hash ^ 0xff) * 1099511628211u; /* an end that no text has */
}

/* A sentence begins with our words; the rest of it, from the first quote on to the last, may be the
 * client's, which may have quotes in it.  The apostrophe of a word is none. */
static u64 hash_sentence(u64 hash, const char *text)
{
    const char *last = strrchr(text, '\'');
    for (const char *at = text; *at; at++) {
        bool opens = *at == '\'' && (at == text || !isalnum((unsigned char)at[-1]));
        if (opens && at < last) at = last;
        if (!strchr("-.0123456789", *at))
            hash = (hash ^ (unsigned char)*at) * 1099511628211u;
    }
    return hash;
}

static u64 reason_make(const struct vx_failure *failure)
{
    u64 hash = (14695981039346656037u ^ (u64)failure->code) * 1099511628211u;
    hash = hash_text(hash, failure->method);
    hash = hash_text(hash, failure->no_model ? "" : failure->model);
    return hash_sentence(hash, failure->text);
}

/* The row that makes room: the oldest of the code that has most rows; of several such
 * codes, of the one that has the oldest row. */
static i32 pick_victim(const struct vx_failures *failures)
{
    i32 most = 0, victim = 0;
    for (i32 i = failures->count - 1; i >= 0; i--) {
        i32 same = 0;
        for (i32 k = 0; k < failures->count; k++)
            same += failures->rows[k].code == failures->rows[i].code;
        if (same <= most) continue;
        most = same;
        victim = i;
    }
    return victim;
}

/* The row's place: where it is, or a new one at the end. */
static i32 find_place(struct vx_failures *failures, u64 reason)
{
    for (i32 i = 0; i < failures->count; i++)
        if (failures->rows[i].reason == reason) return i;
    i32 place = failures->count;
    if (place == VX_FAILURES_MAX)
        place = pick_victim(failures);
    else
        failures->count++;
    failures->rows[place] = (struct vx_failure){.reason = reason, .id = ++failures->ids};
    return place;
}

void vx_failures_note(struct vx_failures *failures, const struct vx_failure *failure)
{
    VX_ASSERT(failure->code != VX_CODE_OK);
    struct vx_failure row = *failure;
    row.reason = reason_make(failure);
    row.last_ms = vx_clock_wall_ms();
    VX_ASSERT(!pthread_mutex_lock(&failures->lock));
    i32 place = find_place(failures, row.reason);
    const struct vx_failure *before = &failures->rows[place];
    row.id = before->id;
    row.count = before->count + 1;
    row.first_ms = before->count ? before->first_ms : row.last_ms;
    memmove(failures->rows + 1, failures->rows, (size_t)place * sizeof row);
    failures->rows[0] = row;
    VX_ASSERT(!pthread_mutex_unlock(&failures->lock));
}

i32 vx_failures_list(struct vx_failures *failures,
                     struct vx_failure rows[VX_FAILURES_MAX])
{
    VX_ASSERT(!pthread_mutex_lock(&failures->lock));
    i32 count = failures->count;
    memcpy(rows, failures->rows, (size_t)count * sizeof *rows);
    VX_ASSERT(!pthread_mutex_unlock(&failures->lock));
    return count;
}
