/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/model/model_tune.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/log.h"
#include "engine/base/process/thread.h"

#include <stdlib.h>
#include <string.h>

/* Equal in all but the number of rows. */
static bool same_layer(const struct vx_conv_problem *a, const struct vx_conv_problem *b)
{
    return a->ci == b->ci && a->co == b->co && a->type == b->type &&
           !memcmp(a->kernel, b->kernel, sizeof a->kernel);
}

static void list_add(const struct vx_gpu_tune_item *item, struct vx_gpu_tune *tune)
{
    for (i32 i = 0; i < tune->count; i++) {
        const struct vx_conv_problem *there = &tune->items[i].problem;
        if (same_layer(there, &item->problem) && there->n == item->problem.n) return;
    }
    if (tune->count < VX_GPU_TUNE_MAX) tune->items[tune->count++] = *item;
}

void vx_gpu_tune_list(const struct vx_gpu_choices *choices, const struct vx_pick *pick,
                      const struct vx_gpu_tune_sizes *sizes, struct vx_gpu_tune *tune)
{
    tune->count = 0;
    if (sizes->mode == VX_TUNE_TABLE) return;
    for (i32 i = 0; i < choices->plan->launches_count; i++) {
        const struct vx_launch *launch = &choices->plan->launches[i];
        if (!vx_gpu_is_conv(choices, i)) continue;
        bool map = launch->map >= 0;
        /* Only maps of one set are measured; others take the choice for as many offsets. */
        if (map && choices->plan->maps[launch->map].kind != VX_MAP_SUBM) continue;
        for (i32 j = 0; j < sizes->count; j++) {
            struct vx_gpu_tune_item item = {
                .want = {.mode = sizes->mode,
                         .algorithm = map ? pick->algorithm : VX_CONV_IMPLICIT}};
            if (sizes->list[j] > choices->voxels_max) continue;
            vx_gpu_problem_make(choices, i, sizes->list[j], &item.problem);
            if (map)
                memcpy(item.want.dilation, choices->plan->maps[launch->map].dilation,
                       sizeof item.want.dilation);
            if (!vx_pick_conv(pick, &item.problem, &item.best)) list_add(&item, tune);
        }
    }
}

static void say_failed(const struct vx_gpu_tune_item *item, vx_status status,
                       const struct vx_why *why)
{
    VX_LOG(TUNE_FAILED, VX_LOG_I64("n", item->problem.n),
           VX_LOG_I64("ci", item->problem.ci), VX_LOG_I64("co", item->problem.co),
           VX_LOG_I64("v", item->problem.v),
           VX_LOG_TEXT("why", vx_status_text(status, why)));
}

static vx_status item_ready(const struct vx_gpu_tune_item *item,
                            const struct vx_gpu_tuner *tuner, struct vx_why *why)
{
    struct vx_measure *measure;
    VX_TRY(vx_measure_open(&tuner->device, &item->want, why, &measure));
    vx_status status = vx_measure_ready(measure, &item->problem, NULL, why);
    vx_measure_close(&measure);
    return status;
}

/* If the kernels of an item cannot be made ready (there is no compiler, for example), it
 * is not measured, and the layer keeps its choice. */
vx_status vx_gpu_tune_ready(struct vx_gpu_tune *tune, const struct vx_gpu_tuner *tuner,
                            struct vx_why *why)
{
    i32 kept = 0;
    for (i32 i = 0; i < tune->count; i++) {
        struct vx_why mine = {{0}};
        vx_status status = item_ready(&tune->items[i], tuner, &mine);
        if (!status.fault) {
            tune->items[kept++] = tune->items[i];
            continue;
        }
        say_failed(&tune->items[i], status, &mine);
        if (vx_status_code(status) != VX_CODE_UNAVAILABLE) continue;
        if (why) *why = mine;
        return status;
    }
    tune->count = kept;
    return VX_OK;
}

static vx_status item_keep(const struct vx_gpu_tuner *tuner,
                           const struct vx_measure_report *report, struct vx_why *why)
{
    if (!tuner->table) return VX_OK;
    pthread_mutex_lock(tuner->lock);
    vx_status status = vx_measure_keep(tuner->device.jit, report, tuner->table, why);
    pthread_mutex_unlock(tuner->lock);
    return status;
}

static vx_status item_begin(struct vx_gpu_tune *tune, const struct vx_gpu_tuner *tuner,
                            struct vx_why *why)
{
    const struct vx_gpu_tune_item *item = &tune->items[tune->done];
    if (!tune->report) tune->report = vx_alloc(sizeof *tune->report);
    VX_ENSURE(tune->report, RESOURCE_EXHAUSTED, "no memory to measure with");
    VX_TRY(vx_measure_open(&tuner->device, &item->want, why, &tune->measure));
    return vx_measure_begin(tune->measure, &item->problem, why, tune->report);
}

static vx_status item_finish(struct vx_gpu_tune *tune, const struct vx_gpu_tuner *tuner,
                             struct vx_why *why)
{
    struct vx_gpu_tune_item *item = &tune->items[tune->done];
    const struct vx_measure_report *report = tune->report;
    tuner->counts->measured += report->count;
    tuner->counts->rejected += report->rejected;
    if (report->best < 0) return VX_OK;
    item->best = report->results[report->best].choice;
    item->measured = true;
    return item_keep(tuner, report, why);
}

/* Sets an item up, or measures one of its candidates; *more: candidates are left. */
static vx_status item_step(struct vx_gpu_tune *tune, const struct vx_gpu_tuner *tuner,
                           struct vx_why *why, bool *more)
{
    *more = true;
    if (!tune->measure) return item_begin(tune, tuner, why);
    VX_TRY(vx_measure_step(tune->measure, why, tune->report, more));
    return *more ? VX_OK : item_finish(tune, tuner, why);
}

/* The measured item of this layer with the nearest size; of two, the larger one. */
static const struct vx_gpu_tune_item *
nearest(const struct vx_gpu_tune *tune, const struct vx_conv_problem *problem, i32 size)
{
    const struct vx_gpu_tune_item *best = NULL;
    i32 best_away = 2 * VX_SIZES_AWAY + 2;
    for (i32 i = 0; i < tune->count; i++) {
        const struct vx_gpu_tune_item *item = &tune->items[i];
        if (!item->measured || !same_layer(&item->problem, problem)) continue;
        const i32 there = vx_size_class(item->problem.n), above = there - size;
        if (!vx_size_is_near(there, size)) continue;
        const i32 away = 2 * abs(above) + (above < 0);
        if (away >= best_away) continue;
        best_away = away;
        best = item;
    }
    return best;
}

static void adopt(const struct vx_gpu_tune *tune, const struct vx_caps *caps,
                  struct vx_gpu_choices *choices)
{
    for (i32 i = 0; i < choices->plan->launches_count; i++) {
        const struct vx_launch *launch = &choices->plan->launches[i];
        i64 most = choices->voxels_max;
        if (!vx_gpu_is_conv(choices, i)) continue;
        if (most > choices->rows_max[launch->set]) most = choices->rows_max[launch->set];
        for (i32 size = 1; size <= vx_size_class(most); size++) {
            struct vx_conv_problem problem;
            i64 last = vx_size_last(size);
            if (last > most) last = most;
            vx_gpu_problem_make(choices, i, last, &problem);
            const struct vx_gpu_tune_item *item = nearest(tune, &problem, size);
            if (item && vx_conv_fits(&problem, &item->best, caps))
                vx_gpu_choice_set(choices, i, size, &item->best);
        }
    }
}

/* Sets the choices when all items have been measured or have failed. */
static void choose(const struct vx_gpu_tune *tune, const struct vx_gpu_tuner *tuner,
                   struct vx_gpu_choices *choices)
{
    const size_t bytes = vx_gpu_choices_bytes(choices);
    struct vx_conv_choice *before = vx_alloc(bytes);
    struct vx_gpu_places *places = vx_alloc(sizeof *places);
    if (before && places) {
        const struct vx_caps *caps = vx_gpu_caps(vx_kernel_set_gpu(tuner->device.set));
        memcpy(before, choices->choices, bytes);
        adopt(tune, caps, choices);
        /* Requests of voxels_max, as in the signature, must still fit. */
        if (vx_gpu_places_need(choices, tuner->voxels_max, places) > tuner->bytes)
            memcpy(choices->choices, before, bytes);
    }
    vx_free(before);
    vx_free(places);
}

static vx_status tune_step(struct vx_gpu_tune *tune, const struct vx_gpu_tuner *tuner,
                           struct vx_gpu_choices *choices, struct vx_why *why)
{
    struct vx_why mine = {{0}};
    bool more;
    vx_status status = item_step(tune, tuner, &mine, &more);
    if (!status.fault && more) return VX_OK;
    if (status.fault) say_failed(&tune->items[tune->done], status, &mine);
    vx_gpu_tune_close(tune);
    tune->done++;
    if (vx_status_code(status) == VX_CODE_UNAVAILABLE) {
        if (why) *why = mine;
        return status;
    }
    if (!vx_gpu_tune_more(tune)) choose(tune, tuner, choices);
    return VX_OK;
}

vx_status vx_gpu_tune_step(struct vx_gpu_tune *tune, const struct vx_gpu_tuner *tuner,
                           struct vx_gpu_choices *choices, struct vx_why *why)
{
    VX_ON(DEVICE);
    VX_ASSERT(vx_gpu_tune_more(tune));
    /* May allocate: the model does not serve yet, and close frees all of it. */
    bool frozen = vx_alloc_thaw();
    vx_status status = tune_step(tune, tuner, choices, why);
    if (frozen) vx_alloc_freeze();
    return status;
}

void vx_gpu_tune_close(struct vx_gpu_tune *tune)
{
    vx_measure_close(&tune->measure);
    vx_free(tune->report);
    tune->report = NULL;
}
