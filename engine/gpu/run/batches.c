/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/run/batches.h"

#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/gpu/model/model_taken.h"
#include "engine/gpu/run/pick.h"
#include "engine/gpu/run/round_fills.h"
#include "engine/gpu/run/round_stages.h"
#include "engine/model/backend.h"

#include <sched.h>

/* A round is urgent beside one of so many times its memory, which goes with voxels and channels, and
 * of at least such a part of the block: 256 MiB of the default, which no layers are done with in a
 * few milliseconds.  Beside smaller ones it would gain little: eight clients whose requests take 3 and
 * 1 ms were answered 10 % slower, and those of 20 ms at other times than they came. */
#define URGENT_TIMES 8
#define URGENT_PART  16
/* The longest rest behind an urgent round. */
#define REST_NS_MAX (100 * VX_NS_PER_MS)

vx_status vx_gpu_batches_open(struct vx_gpu_batches *batches, struct vx_kernel_set *set,
                              struct vx_why *why)
{
    for (u32 i = 0; i < VX_ENGINE_BATCHES_MAX; i++) {
        struct vx_gpu_slot *slot = &batches->slots[i];
        slot->lane.bit = 1u << i;
        VX_TRY(vx_gpu_lane_open(batches->room.gpu, set, why, &slot->lane));
    }
    return VX_OK;
}

void vx_gpu_batches_close(struct vx_gpu_batches *batches)
{
    for (u32 i = 0; i < VX_ENGINE_BATCHES_MAX; i++) {
        VX_ASSERT(!batches->slots[i].batch);
        vx_gpu_lane_close(&batches->slots[i].lane);
    }
}

static struct vx_gpu_slot *other_of(struct vx_gpu_batches *batches,
                                    const struct vx_gpu_slot *slot)
{
    _Static_assert(VX_ENGINE_BATCHES_MAX == 2, "there is one other");
    return &batches->slots[slot == batches->slots];
}

static void ended_add(struct vx_gpu_batches *batches, struct vx_batch *batch)
{
    *(batches->last ? &batches->last->next : &batches->first) = batch;
    batches->last = batch;
}

static struct vx_batch *ended_take(struct vx_gpu_batches *batches)
{
    struct vx_batch *batch = batches->first;
    if (!batch) return NULL;
    batches->first = batch->next;
    if (!batches->first) batches->last = NULL;
    batch->next = NULL;
    return batch;
}

/* Allocates the round's memory; false if the other lane holds too much of the block. */
static bool take_block(struct vx_gpu_batches *batches, struct vx_gpu_slot *slot)
{
    const struct vx_gpu_slot *other = other_of(batches, slot);
    struct vx_gpu_room *room = &batches->room;
    struct vx_gpu_round *round = &slot->round;
    size_t taken = other->running ? other->round.bytes : 0;
    size_t all = room->bytes / VX_GPU_LINE_BYTES * VX_GPU_LINE_BYTES;
    VX_ASSERT(round->bytes % VX_GPU_LINE_BYTES == 0);
    if (round->bytes > all - taken) return false;
    round->block =
        slot == batches->slots ? room->block : room->block + all - round->bytes;
    if (taken + round->bytes > room->used_max) room->used_max = taken + round->bytes;
    return true;
}

/* --- the end of a round --- */

i64 vx_gpu_spans_shared(const struct vx_gpu_span *a, const struct vx_gpu_span *b)
{
    f64 begin = a->begin > b->begin ? a->begin : b->begin;
    f64 end = a->end < b->end ? a->end : b->end;
    return end > begin ? (i64)(end - begin) : 0;
}

/* Reads the spans of the round of `slot`, which has ended, and of the round of `other`,
 * which may still run; times count from the beginning of the first.  False if the other
 * round has not begun, or if the driver cannot report the times. */
static bool spans_read(struct vx_gpu_slot *slot, struct vx_gpu_slot *other,
                       struct vx_gpu_span spans[2])
{
    struct vx_gpu_event **mine = slot->lane.marks, **theirs = other->lane.marks;
    struct vx_gpu *gpu = slot->lane.gpu;
    struct vx_why unused;
    bool begun, ended;
    f64 ns;
    spans[0] = spans[1] = (struct vx_gpu_span){0, (f64)slot->round.device_ns};
    if (vx_gpu_event_done(gpu, theirs[VX_GPU_MARK_BEGIN], &unused, &begun).fault ||
        !begun)
        return false;
    if (vx_gpu_event_elapsed(gpu, theirs[VX_GPU_MARK_BEGIN], mine[VX_GPU_MARK_END],
                             &unused, &ns)
            .fault)
        return false;
    spans[1].begin = spans[0].end - ns;
    if (vx_gpu_event_done(gpu, theirs[VX_GPU_MARK_END], &unused, &ended).fault)
        return false;
    /* A round that still runs ends after this one: its span keeps the end set above. */
    return !ended ||
           !vx_gpu_event_elapsed(gpu, mine[VX_GPU_MARK_BEGIN], theirs[VX_GPU_MARK_END],
                                 &unused, &spans[1].end)
                .fault;
}

/* The time that two rounds share counts for the batch whose round is
 * found ended first. */
static void times_share(struct vx_gpu_batches *batches, struct vx_gpu_slot *slot)
{
    struct vx_gpu_slot *other = other_of(batches, slot);
    struct vx_gpu_span spans[2];
    i64 own = slot->round.device_ns - slot->shared_ns;
    slot->batch->device_ns += own > 0 ? own : 0;
    if (other->running && other->stage == VX_GPU_STAGE_END &&
        spans_read(slot, other, spans))
        other->shared_ns += vx_gpu_spans_shared(&spans[0], &spans[1]);
}

static bool round_is_urgent(struct vx_gpu_batches *batches,
                            const struct vx_gpu_slot *slot)
{
    const struct vx_gpu_slot *other = other_of(batches, slot);
    return other->running && other->round.bytes >= batches->room.bytes / URGENT_PART &&
           other->round.bytes / URGENT_TIMES >= slot->round.bytes;
}

static bool still_rests(struct vx_gpu_batches *batches, const struct vx_gpu_slot *slot)
{
    const struct vx_gpu_slot *other = other_of(batches, slot);
    return other->running && other->stage != VX_GPU_STAGE_PLACES &&
           vx_clock_ns() < slot->rest_until_ns;
}

static void rest_begin(struct vx_gpu_slot *slot)
{
    const i64 took_ns = slot->round.device_ns;
    if (!slot->urgent) return;
    slot->rest_until_ns = vx_clock_ns() + (took_ns < REST_NS_MAX ? took_ns : REST_NS_MAX);
}

static void round_finish(struct vx_gpu_batches *batches, struct vx_gpu_slot *slot,
                         vx_status status, const struct vx_why *why)
{
    struct vx_gpu_round *round = &slot->round;
    vx_gpu_round_finish(round, status, why);
    rest_begin(slot);
    for (i32 i = 0; i < round->members_count; i++)
        if (round->members[i].again)
            slot->states[vx_gpu_slot_index(slot, round->members[i].item)] =
                VX_GPU_ITEM_WAITS_APART;
    slot->running = false;
    if (!status.fault) times_share(batches, slot);
}

/* Ends a round that has failed.  The part of it that was launched still reads and
 * writes the items' memory, so this waits for it; if that fails too, the device
 * is marked lost. */
static void round_fail(struct vx_gpu_batches *batches, struct vx_gpu_slot *slot,
                       vx_status status, const struct vx_why *why)
{
    struct vx_why said, first = *why;
    vx_status waited = vx_gpu_lane_wait(&slot->lane, &said);
    if (waited.fault) {
        status = vx_gpu_lose(batches->room.gpu, &said);
        first = said;
    }
    round_finish(batches, slot, status, &first);
}

/* Says what a round that is launched took.  Before its outputs: its places may be the
 * model's, for which the other lane may launch next. */
static void say_taken(struct vx_gpu_slot *slot)
{
    struct vx_taken taken;
    bool wanted = false;
    for (i32 i = 0; i < slot->round.members_count; i++)
        wanted |= slot->round.members[i].item->says_taken;
    if (!wanted || !vx_gpu_round_stage_last(&slot->round)) return;
    vx_gpu_taken_print(&slot->round.forward, &taken);
    for (i32 i = 0; i < slot->round.members_count; i++)
        vx_item_say_taken(slot->batch, slot->round.members[i].item, taken.text);
}

/* Launches one stage of a round; unless it is the last, sizes are awaited again. */
static vx_status stage_launch(struct vx_gpu_slot *slot, struct vx_why *why)
{
    const bool last = vx_gpu_round_stage_last(&slot->round);
    const bool wants = slot->stage == VX_GPU_STAGE_TOLD;
    if (!last) slot->stage = VX_GPU_STAGE_SIZES;
    VX_TRY(vx_gpu_round_stage_launch(&slot->round, why));
    if (last) say_taken(slot);
    return !last || wants ? VX_OK : vx_gpu_round_outputs(&slot->round, why);
}

/* Launches the layers of a round whose sizes are known, and its outputs if their places
 * are. */
static vx_status round_launch(struct vx_gpu_slot *slot, struct vx_why *why)
{
    bool wants = vx_gpu_round_wants_places(&slot->round);
    slot->stage = wants ? VX_GPU_STAGE_TOLD : VX_GPU_STAGE_END;
    if (!slot->round.stage) vx_gpu_round_densities(&slot->round);
    if (vx_gpu_round_staged(&slot->round)) return stage_launch(slot, why);
    if (slot->model->plan->levels || slot->model->gpu->choices->by_density)
        vx_gpu_pick_places(slot);
    VX_ASSERT(slot->model->gpu->places.bytes <= slot->round.bytes);
    VX_TRY(vx_gpu_round_launch(&slot->round, why));
    say_taken(slot);
    return wants ? VX_OK : vx_gpu_round_outputs(&slot->round, why);
}

static vx_status round_start(struct vx_gpu_slot *slot, struct vx_why *why)
{
    if (!vx_gpu_round_sizes(&slot->round)) return round_launch(slot, why);
    slot->stage = VX_GPU_STAGE_SIZES;
    return vx_gpu_round_sizes_launch(&slot->round, why);
}

/* Sends the members of a round that is not launched back to wait; those that have failed
 * are answered. */
static void round_return(struct vx_gpu_slot *slot)
{
    for (i32 i = 0; i < slot->round.members_count; i++) {
        const struct vx_gpu_member *member = &slot->round.members[i];
        u8 *state = &slot->states[vx_gpu_slot_index(slot, member->item)];
        if (member->item->status.fault)
            *state = VX_GPU_ITEM_DONE;
        else
            *state = member->apart || member->again ? VX_GPU_ITEM_WAITS_APART
                                                    : VX_GPU_ITEM_WAITS;
    }
}

static void round_begin(struct vx_gpu_batches *batches, struct vx_gpu_slot *slot)
{
    struct vx_gpu_round *round = &slot->round;
    struct vx_why why = {{0}};
    bool refused;
    round->room = &batches->room;
    round->lane = &slot->lane;
    round->other = &other_of(batches, slot)->lane;
    round->model = slot->model;
    round->device_ns = slot->shared_ns = 0;
    round->times_count = 1;
    round->ends_beside = false;
    slot->urgent = round_is_urgent(batches, slot);
    vx_gpu_lane_hurry(&slot->lane, slot->urgent);
    vx_gpu_round_hold(round, &refused);
    if (refused) {
        round_return(slot);
        return; /* slot_go picks the remaining items again */
    }
    for (i32 i = 0; i < round->members_count; i++)
        slot->states[vx_gpu_slot_index(slot, round->members[i].item)] = VX_GPU_ITEM_DONE;
    slot->running = true;
    vx_status status = round_start(slot, &why);
    if (status.fault) round_fail(batches, slot, status, &why);
}

/* The sizes of a round's sets are there.  Returns whether it goes on. */
static bool round_sized(struct vx_gpu_slot *slot)
{
    bool refused;
    if (slot->round.made.levels.stage.now) {
        vx_gpu_round_stage_read(&slot->round);
        return true;
    }
    vx_gpu_round_sizes_read(&slot->round, &refused);
    if (refused) round_return(slot);
    return !refused;
}

/* An item of the batch has asked, and is not placed. */
static bool batch_asks(const struct vx_batch *batch)
{
    for (i32 i = 0; i < batch->items_count; i++) {
        enum vx_asking asking = batch->items[i].asking;
        if (asking == VX_ASKING_OPEN || asking == VX_ASKING_TOLD) return true;
    }
    return false;
}

/* True if only the caller can go on: it must place items. */
static bool slot_asks(const struct vx_gpu_slot *slot)
{
    if (!slot->batch || !batch_asks(slot->batch)) return false;
    return !slot->running || slot->stage == VX_GPU_STAGE_PLACES;
}

/* What the round waited for has happened. */
static void round_go_on(struct vx_gpu_batches *batches, struct vx_gpu_slot *slot)
{
    struct vx_why why = {{0}};
    vx_status status = VX_OK;
    switch (slot->stage) {
    case VX_GPU_STAGE_SIZES:
        slot->running = round_sized(slot);
        if (slot->running) status = round_launch(slot, &why);
        break;
    case VX_GPU_STAGE_TOLD:
        vx_gpu_round_ask(&slot->round, slot->batch);
        slot->stage = VX_GPU_STAGE_PLACES;
        break;
    case VX_GPU_STAGE_PLACES:
        slot->stage = VX_GPU_STAGE_END;
        status = vx_gpu_round_outputs(&slot->round, &why);
        break;
    case VX_GPU_STAGE_END: round_finish(batches, slot, VX_OK, &why); break;
    }
    if (status.fault) round_fail(batches, slot, status, &why);
}

/* Whether what the round waits for has happened. */
static vx_status round_ready(const struct vx_gpu_slot *slot, struct vx_why *why,
                             bool *ready)
{
    struct vx_gpu_event *const events[] = {[VX_GPU_STAGE_SIZES] = slot->lane.sized,
                                           [VX_GPU_STAGE_TOLD] = slot->lane.told,
                                           [VX_GPU_STAGE_END] =
                                               slot->lane.marks[VX_GPU_MARK_END]};
    *ready = !slot_asks(slot);
    if (slot->stage == VX_GPU_STAGE_PLACES) return VX_OK;
    VX_TRY(vx_gpu_event_done(slot->lane.gpu, events[slot->stage], why, ready));
    if (!*ready || slot->stage != VX_GPU_STAGE_END || !slot->round.ends_beside)
        return VX_OK;
    return vx_gpu_event_done(slot->lane.gpu, slot->lane.made, why, ready);
}

/* Starts the batch's next round, leaves the batch waiting for memory or at rest, or
 * ends the batch. */
static void slot_go(struct vx_gpu_batches *batches, struct vx_gpu_slot *slot)
{
    slot->rests = slot->batch && !slot->running && still_rests(batches, slot);
    if (slot->rests) return;
    while (slot->batch && !slot->running) {
        if (vx_gpu_pick(&batches->room, slot)) {
            if (!take_block(batches, slot)) return;
            round_begin(batches, slot);
            continue;
        }
        if (batch_asks(slot->batch)) return;
        ended_add(batches, slot->batch);
        slot->batch = NULL;
        slot->model = NULL;
    }
}

/* The batch that was submitted first allocates its memory first. */
static void all_go(struct vx_gpu_batches *batches)
{
    struct vx_gpu_slot *slots = batches->slots;
    bool first = slots[0].number < slots[1].number;
    slot_go(batches, &slots[!first]);
    slot_go(batches, &slots[first]);
}

/* --- the interface --- */

void vx_gpu_batches_submit(struct vx_gpu_batches *batches, struct vx_model *model,
                           struct vx_batch *batch)
{
    struct vx_gpu_slot *slot = batches->slots;
    if (slot->batch) slot = other_of(batches, slot);
    VX_ASSERT(!slot->batch);
    slot->batch = batch;
    slot->model = model;
    slot->number = ++batches->submitted;
    for (i32 i = 0; i < batch->items_count; i++)
        slot->states[i] =
            vx_item_runs(&batch->items[i]) ? VX_GPU_ITEM_WAITS : VX_GPU_ITEM_DONE;
    slot_go(batches, slot);
}

void vx_gpu_batches_refuse(struct vx_gpu_batches *batches, struct vx_batch *batch,
                           vx_status status, const struct vx_why *why)
{
    for (i32 i = 0; i < batch->items_count; i++) {
        if (!vx_item_runs(&batch->items[i])) continue;
        batch->items[i].status = status;
        batch->items[i].why = *why;
    }
    ended_add(batches, batch);
}

void vx_gpu_batches_placed(struct vx_gpu_batches *batches)
{
    all_go(batches); /* a batch may have waited for this to end */
}

/* Finishes the rounds that have ended on the device, and starts those that waited
 * for their memory. */
static void poll(struct vx_gpu_batches *batches)
{
    for (i32 i = 0; i < VX_ENGINE_BATCHES_MAX; i++) {
        struct vx_gpu_slot *slot = &batches->slots[i];
        struct vx_why why = {{0}};
        bool ready = true;
        if (slot->rests) slot_go(batches, slot);
        if (!slot->running) continue;
        while (slot->running && ready) {
            vx_status status = round_ready(slot, &why, &ready);
            if (!status.fault && !ready && slot->stage == VX_GPU_STAGE_END)
                status = vx_gpu_round_look(&slot->round, &why);
            if (status.fault)
                round_fail(batches, slot, status, &why);
            else if (ready)
                round_go_on(batches, slot);
        }
        if (!slot->running) all_go(batches);
    }
}

/* Waits until a round may have ended.  Of two rounds either may end first, so the caller
 * polls both; for a single round the driver waits.  False: only the caller can go on. */
static bool await(struct vx_gpu_batches *batches)
{
    struct vx_gpu_slot *slots = batches->slots;
    const bool goes[2] = {slots[0].running && !slot_asks(&slots[0]),
                          slots[1].running && !slot_asks(&slots[1])};
    struct vx_gpu_slot *slot = &slots[goes[1]];
    struct vx_why why = {{0}};
    if (!goes[0] && !goes[1]) return false;
    /* The sets of a request are made in less time than the driver needs to wake a thread;
     * those of later stages wait for layers. */
    const bool soon =
        slot->stage == VX_GPU_STAGE_SIZES && !slot->round.made.levels.stage.now;
    if ((goes[0] && goes[1]) || soon || slots[0].rests || slots[1].rests) {
        sched_yield();
        return true;
    }
    vx_status status = vx_gpu_lane_wait(&slot->lane, &why);
    if (!status.fault) return true;
    round_fail(batches, slot, status, &why);
    all_go(batches);
    return true;
}

struct vx_batch *vx_gpu_batches_collect(struct vx_gpu_batches *batches, bool wait)
{
    for (;;) {
        poll(batches);
        struct vx_batch *batch = ended_take(batches);
        if (batch || !wait || !await(batches)) return batch;
    }
}

void vx_gpu_batches_drain(struct vx_gpu_batches *batches)
{
    for (;;) {
        poll(batches);
        if (!batches->slots[0].batch && !batches->slots[1].batch) return;
        VX_ASSERT(await(batches));
    }
}

void vx_gpu_batches_run(struct vx_gpu_batches *batches, struct vx_model *model,
                        struct vx_item *item)
{
    struct vx_gpu_slot *slot = batches->slots;
    struct vx_batch batch = {.items = item, .items_count = 1}, *ended = batches->first,
                    *last = batches->last;
    batches->first = batches->last = NULL;
    vx_gpu_batches_submit(batches, model, &batch);
    for (poll(batches); slot->batch; poll(batches)) await(batches);
    batches->first = ended;
    batches->last = last;
}

bool vx_gpu_batches_use(const struct vx_gpu_batches *batches,
                        const struct vx_model *model)
{
    for (i32 i = 0; i < VX_ENGINE_BATCHES_MAX; i++)
        if (batches->slots[i].batch && batches->slots[i].model == model) return true;
    return false;
}
