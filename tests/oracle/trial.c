/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/oracle/trial.h"

#include "engine/base/process/check.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Between two buffers of device memory: a line, longer than any vector store. */
#define LINE      256
#define ARGS_MAX  512
#define WORDS_MAX 64 /* bytes of the name of a tile */

f64 vx_trial_step(enum vx_number type)
{
    switch (type) {
    case VX_NUMBER_F16: return 0x1p-11;
    case VX_NUMBER_BF16: return 0x1p-8;
    default: return 0x1p-24;
    }
}

void vx_trial_init(struct vx_trial *trial, const struct vx_jit_wanted *kernel, void *args)
{
    *trial = (struct vx_trial){.kernel = *kernel, .args = args};
    VX_ASSERT(kernel->spec->args_bytes <= ARGS_MAX);
}

void vx_trial_label(struct vx_trial *trial, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    (void)vsnprintf(trial->label, sizeof trial->label, format, list);
    va_end(list);
}

static struct vx_field *field_add(struct vx_trial *trial, const void *pointer, void *data,
                                  size_t bytes)
{
    VX_ASSERT(trial->count < VX_TRIAL_FIELDS_MAX);
    struct vx_field *field = &trial->fields[trial->count++];
    const struct vx_field *has = trial->inside ? trial->fields + trial->inside - 1 : NULL;
    u8 *base = has ? has->host : trial->args;
    size_t at = (size_t)((const u8 *)pointer - base);
    VX_ASSERT(at + sizeof data <= (has ? has->bytes : trial->kernel.spec->args_bytes));
    *field = (struct vx_field){
        .at = at, .inside = trial->inside, .host = data, .bytes = bytes};
    memcpy(base + at, &data, sizeof data);
    return field;
}

struct vx_field *vx_trial_in(struct vx_trial *trial, const void *pointer,
                             const void *data, size_t bytes)
{
    return field_add(trial, pointer, (void *)(uintptr_t)data, bytes);
}

struct vx_field *vx_trial_out(struct vx_rig *rig, struct vx_trial *trial,
                              const void *pointer, size_t bytes)
{
    void *data = vx_rig_take(rig, bytes);
    struct vx_field *field = field_add(trial, pointer, data, bytes);
    vx_rig_poison(data, bytes);
    field->role = VX_FIELD_OUT;
    return field;
}

struct vx_field *vx_trial_both(struct vx_trial *trial, const void *pointer, void *data,
                               size_t bytes)
{
    struct vx_field *field = field_add(trial, pointer, data, bytes);
    field->role = VX_FIELD_BOTH;
    return field;
}

void vx_trial_same(struct vx_trial *trial, const void *pointer,
                   const struct vx_field *field)
{
    i32 same = 1 + (i32)(field - trial->fields);
    field_add(trial, pointer, field->host, 0)->same = same;
}

void vx_trial_inside(struct vx_trial *trial, const struct vx_field *field)
{
    trial->inside = field ? 1 + (i32)(field - trial->fields) : 0;
}

/* --- the device's half --- */

static size_t trial_layout(struct vx_trial *trial)
{
    size_t bytes = LINE;
    for (i32 i = 0; i < trial->count; i++) {
        struct vx_field *field = &trial->fields[i];
        field->offset = bytes + (size_t)field->shift;
        if (field->same) field->offset = trial->fields[field->same - 1].offset;
        if (field->same) continue;
        bytes = vx_round_up(field->offset + field->bytes, LINE) + LINE;
    }
    return bytes;
}

static const char *kernel_name(const struct vx_trial *trial, char words[WORDS_MAX])
{
    const struct vx_jit_wanted *it = &trial->kernel;
    int at = snprintf(words, WORDS_MAX, "type %d", (int)it->type);
    for (i32 i = 0; it->tile && i < it->spec->macros_count && at < WORDS_MAX; i++)
        at += snprintf(words + at, WORDS_MAX - (size_t)at, "%s%d", i ? "," : " [",
                       it->tile->values[i]);
    return words;
}

static void trial_fail(struct vx_rig *rig, const struct vx_trial *trial, const char *what)
{
    char words[WORDS_MAX];
    vx_rig_fail(rig, "%s %s, %s: %s", trial->kernel.spec->name, kernel_name(trial, words),
                trial->label, what);
}

/* Copies the arguments in, launches, copies everything back. */
static void trial_launch(struct vx_rig *rig, struct vx_trial *trial, u8 *image, u8 *back)
{
    _Alignas(16) u8 args[ARGS_MAX];
    const size_t bytes = trial_layout(trial);
    struct vx_gpu *gpu = rig->bench.gpu;
    struct vx_gpu_stream *stream = rig->bench.stream;
    struct vx_why why = {""};
    u8 *device = vx_rig_device(rig, bytes);
    memcpy(args, trial->args, trial->kernel.spec->args_bytes);
    vx_rig_poison(image, bytes);
    for (i32 i = 0; i < trial->count; i++) {
        struct vx_field *field = &trial->fields[i];
        void *at = device + field->offset;
        u8 *has = field->inside ? image + trial->fields[field->inside - 1].offset : args;
        memcpy(has + field->at, &at, sizeof at);
        memcpy(image + field->offset, field->host, field->bytes);
        if (field->role != VX_FIELD_IN) field->back = back + field->offset;
    }
    vx_rig_need(
        rig,
        vx_gpu_copy_in(gpu, stream, &(struct vx_gpu_copy){device, image, bytes}, &why),
        &why);
    vx_rig_need(rig, vx_kernel_launch(rig->bench.set, stream, &trial->kernel, args, &why),
                &why);
    vx_rig_need(
        rig,
        vx_gpu_copy_out(gpu, stream, &(struct vx_gpu_copy){back, device, bytes}, &why),
        &why);
    vx_rig_need(rig, vx_gpu_stream_wait(gpu, stream, &why), &why);
}

/* Guards and inputs must be as they were. */
static void trial_check_guards(struct vx_rig *rig, const struct vx_trial *trial,
                               const u8 *image, const u8 *back)
{
    const size_t bytes = (size_t)(back - image); /* one buffer, two halves */
    size_t at = 0;
    for (i32 i = 0; i <= trial->count; i++) {
        const struct vx_field *field = &trial->fields[i];
        bool last = i == trial->count;
        size_t end = last ? bytes : field->offset;
        if (!last && (field->same || field->role == VX_FIELD_IN)) continue;
        for (; at < end; at++)
            if (image[at] != back[at]) {
                char what[96];
                (void)snprintf(what, sizeof what,
                               "wrote outside its outputs, %lld bytes before field %d",
                               (long long)(end - at), i);
                trial_fail(rig, trial, what);
                return;
            }
        at = last ? end : field->offset + field->bytes;
    }
}

/* --- the comparison --- */

static void compare_exact(struct vx_rig *rig, const struct vx_trial *trial, i32 index)
{
    const struct vx_field *field = &trial->fields[index];
    const u8 *host = field->host, *back = field->back;
    char what[128];
    if (!memcmp(host, back, field->bytes)) return;
    size_t at = 0;
    u32 expected = 0, got = 0;
    while (host[at] == back[at]) at++;
    at -= at % 4;
    size_t left = field->bytes - at < 4 ? field->bytes - at : 4;
    memcpy(&expected, host + at, left);
    memcpy(&got, back + at, left);
    (void)snprintf(what, sizeof what,
                   "expected 0x%08x at word %lld of field %d, got 0x%08x", expected,
                   (long long)(at / 4), index, got);
    trial_fail(rig, trial, what);
}

/* Both sides round once, from sums that differ by `absolute` at most, so they differ by two
 * roundings and `absolute`.  A number near a boundary of its type may be rounded to either side,
 * subnormal ones too. */
static f64 real_bound(const struct vx_field *field, f64 truth)
{
    if (field->absolute < 0) return 0;
    f64 least = field->type == VX_NUMBER_F16 ? 0x1p-24 : 0x1p-133;
    return 2 * vx_trial_step(field->type) * fabs(truth) + least + field->absolute;
}

static void compare_reals(struct vx_rig *rig, const struct vx_trial *trial, i32 index)
{
    const struct vx_field *field = &trial->fields[index];
    const size_t element = (size_t)vx_number_bytes(field->type);
    const f64 absolute = field->absolute < 0 ? 0 : field->absolute;
    i64 count = (i64)(field->bytes / element);
    f64 squares = 0, off_squares = 0, largest = 0;
    char what[160];
    for (i64 e = 0; e < count; e++) {
        const size_t at = (size_t)e * element;
        f64 truth = vx_number_ref_read(field->host, field->type, e);
        if (isfinite(truth)) squares += truth * truth;
        if (isfinite(truth) && fabs(truth) > largest) largest = fabs(truth);
        if (!memcmp((u8 *)field->host + at, (u8 *)field->back + at, element)) continue;
        f64 got = vx_number_ref_read(field->back, field->type, e);
        f64 off = fabs(got - truth);
        if (isnan(truth) && isnan(got)) continue;
        if (!(off <= real_bound(field, truth))) {
            (void)snprintf(what, sizeof what,
                           "expected %.9g within %.3g at element %lld of field %d, got "
                           "%.9g",
                           truth, real_bound(field, truth), (long long)e, index, got);
            trial_fail(rig, trial, what);
            return;
        }
        off_squares += off * off;
    }
    /* One element may be two roundings and all of `absolute` away; all together, in the
     * root of the mean of the squares, half of that.  Of few elements the largest may be
     * that one, and outweigh the others. */
    f64 mean = vx_trial_step(field->type) * sqrt(squares) +
               absolute / 2 * sqrt((f64)count) + 0x1p-24;
    mean = hypot(mean, 2 * vx_trial_step(field->type) * largest);
    if (off_squares <= mean * mean) return;
    (void)snprintf(what, sizeof what, "NMSE %.3g of field %d is above %.3g",
                   off_squares / squares, index, mean * mean / squares);
    trial_fail(rig, trial, what);
}

bool vx_trial_run(struct vx_rig *rig, struct vx_trial *trial)
{
    i64 failures = rig->failures;
    size_t bytes = trial_layout(trial);
    u8 *image = vx_rig_take(rig, 2 * bytes), *back = image + bytes;
    rig->trials++;
    vx_rig_mark(rig, &trial->kernel);
    trial_launch(rig, trial, image, back);
    trial_check_guards(rig, trial, image, back);
    trial->kernel.spec->ref(trial->args, trial->kernel.type);
    for (i32 i = 0; i < trial->count; i++) {
        const struct vx_field *field = &trial->fields[i];
        if (field->role == VX_FIELD_IN) continue;
        if (field->kind == VX_FIELD_EXACT) compare_exact(rig, trial, i);
        if (field->kind == VX_FIELD_REAL) compare_reals(rig, trial, i);
    }
    return rig->failures == failures;
}
