/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/support/worker_rig.h"

#include "engine/gpu/fake/fake.h"
#include "server/repository/repository.h"
#include "tests/support/wait.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ARENA_BYTES ((u64)8 << 20)

atomic_bool worker_rig_reading;

/* Always reports that the files are the expected ones. */
vx_status vx_repository_check(const char *directory, i64 version, u64 fingerprint,
                              struct vx_why *why)
{
    (void)directory;
    (void)version;
    (void)fingerprint;
    (void)why;
    VX_WAIT_UNTIL(!atomic_load(&worker_rig_reading));
    return VX_OK;
}

/* ------- the front and its clients ------- */

struct worker_rig worker_rig;

static void *run_worker(void *unused)
{
    (void)unused;
    ck_assert_int_eq(vx_worker_run(&worker_rig.start), 0);
    return NULL;
}

bool worker_rig_hear(int milliseconds)
{
    struct pollfd wait = {.fd = worker_rig.fd, .events = POLLIN};
    size_t bytes;
    if (poll(&wait, 1, milliseconds) <= 0) return false;
    ck_assert(!vx_channel_receive(worker_rig.fd, &worker_rig.in, &bytes).fault);
    return bytes > 0;
}

/* The next message that is not about progress. */
void worker_rig_expect(enum vx_message_kind kind, u64 batch)
{
    do
        ck_assert_msg(worker_rig_hear(VX_WAIT_SECONDS * 1000), "waited for message %d",
                      kind);
    while (worker_rig.in.head.kind == VX_MESSAGE_PROGRESS ||
           worker_rig.in.head.kind == VX_MESSAGE_WORKING);
    ck_assert_int_eq(worker_rig.in.head.kind, kind);
    ck_assert_uint_eq(worker_rig.in.head.serial, batch);
}

void worker_rig_expect_mapped(i32 region, u64 use, enum vx_code code)
{
    worker_rig_expect(VX_MESSAGE_MAPPED, use);
    ck_assert_int_eq(worker_rig.in.mapped.region, region);
    ck_assert_msg(worker_rig.in.mapped.code == (i32)code, "%s",
                  worker_rig.in.mapped.why.text);
}

/* Waits until the worker has read all messages so far. */
void worker_rig_sync(void)
{
    struct vx_message_head head = {VX_MESSAGE_STATS, 0, 0};
    ck_assert(!vx_channel_send(worker_rig.fd, &head, sizeof head).fault);
    worker_rig_expect(VX_MESSAGE_STATED, 0);
}

void worker_rig_memory_open(i32 region, u64 offset)
{
    struct worker_memory *memory = &worker_rig.memories[region];
    u64 bytes = offset + WORKER_RIG_REGION_BYTES;
    *memory = (struct worker_memory){.fd = memfd_create("client", MFD_CLOEXEC),
                                     .offset = offset,
                                     .bytes = WORKER_RIG_REGION_BYTES};
    ck_assert(memory->fd >= 0 && !ftruncate(memory->fd, (off_t)bytes));
    memory->whole = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);
    ck_assert_ptr_ne(memory->whole, MAP_FAILED);
    memory->at = memory->whole + offset;
}

void worker_rig_memory_close(i32 region)
{
    struct worker_memory *memory = &worker_rig.memories[region];
    if (!memory->whole) return;
    munmap(memory->whole, memory->offset + WORKER_RIG_REGION_BYTES);
    close(memory->fd);
    memory->whole = NULL;
}

void worker_rig_say_map(i32 region, u64 use)
{
    const struct worker_memory *memory = &worker_rig.memories[region];
    struct vx_message_map map = {.head = {VX_MESSAGE_MAP, 0, use},
                                 .region = region,
                                 .on_device = region == WORKER_RIG_DEVICE,
                                 .offset = memory->offset,
                                 .bytes = memory->bytes};
    vx_status status;
    if (region == WORKER_RIG_DEVICE) {
        vx_fake_handle(getpid(), memory->fd, memory->bytes, map.handle);
        status = vx_channel_send(worker_rig.fd, &map.head, sizeof map);
    } else {
        status = vx_channel_send_fd(worker_rig.fd, &map.head, sizeof map, memory->fd);
    }
    ck_assert(!status.fault);
}

void worker_rig_say_unmap(i32 region)
{
    struct vx_message_unmap unmap = {.head = {VX_MESSAGE_UNMAP, 0, 0}, .region = region};
    ck_assert(!vx_channel_send(worker_rig.fd, &unmap.head, sizeof unmap).fault);
}

void worker_rig_begin(const char *device)
{
    const struct vx_slots *slots;
    struct vx_message_load load = {.head = {VX_MESSAGE_LOAD, 0, 77}, .version = 1};
    vx_test_directory(vx_rig_root);
    vx_rig_write_model(vx_rig_root, vx_rig_networks[1], 5);
    snprintf(load.directory, sizeof load.directory, "%s", vx_rig_root);
    ck_assert(!vx_channel_pair(worker_rig.fds).fault);
    worker_rig.fd = worker_rig.fds[0];
    worker_rig.fake = device[0] == 'f';
    ck_assert(!vx_shared_open(ARENA_BYTES * 2, NULL, &worker_rig.shared).fault);
    slots = vx_shared_slots(worker_rig.shared);
    ck_assert(slots->take(slots->context, ARENA_BYTES, &worker_rig.slot));
    worker_rig.memories[0].at = slots->memory(slots->context, &worker_rig.slot);
    vx_config_defaults(&worker_rig.config);
    snprintf(worker_rig.config.device, sizeof worker_rig.config.device, "%s", device);
    worker_rig.config.kernel_cache[0] = worker_rig.config.tune_table[0] = '\0';
    worker_rig.config.device_bytes = 64 << 20;
    worker_rig.config.cache_bytes = 32 << 20;
    worker_rig.start =
        (struct vx_worker_start){.config = &worker_rig.config,
                                 .channel = worker_rig.fds[1],
                                 .arena = dup(vx_shared_fd(worker_rig.shared))};
    ck_assert(!pthread_create(&worker_rig.thread, NULL, run_worker, NULL));
    worker_rig_expect(VX_MESSAGE_UP, 0);
    ck_assert(!vx_channel_send(worker_rig.fd, &load.head, sizeof load).fault);
    worker_rig_expect(VX_MESSAGE_LOADED, 77);
    ck_assert_msg(!worker_rig.in.loaded.code, "%s", worker_rig.in.loaded.why.text);
    worker_rig.signature = worker_rig.in.loaded.signature;
}

void worker_rig_say_load(void)
{
    struct vx_message_load load = {.head = {VX_MESSAGE_LOAD, 0, 78}, .version = 1};
    snprintf(load.directory, sizeof load.directory, "%s", vx_rig_root);
    ck_assert(!vx_channel_send(worker_rig.fd, &load.head, sizeof load).fault);
}

void worker_rig_end(void)
{
    close(worker_rig.fd);
    pthread_join(worker_rig.thread, NULL);
    close(worker_rig.fds[1]);
    vx_shared_close(&worker_rig.shared);
    for (i32 i = 1; i <= WORKER_RIG_DEVICE; i++) worker_rig_memory_close(i);
    vx_test_remove(vx_rig_root);
    ck_assert_int_eq(vx_fake_pinned(), 0);
    ck_assert_int_eq(vx_fake_imported(), 0);
    ck_assert_uint_eq(vx_fake_memory_used(), 0);
}

/* ------- items ------- */

static size_t output_bytes(i32 o, i64 n)
{
    const struct vx_output *it = &worker_rig.signature.outputs[o];
    return (size_t)n * (size_t)it->channels * vx_dtype_bytes(it->dtype);
}

/* Puts a tensor there; NULL: memory with a pattern that shows whether it was written. */
static struct vx_place put(i32 where, const void *data, size_t bytes, const u8 **at)
{
    struct worker_memory *memory = &worker_rig.memories[where];
    struct vx_place place = {memory->used, bytes,
                             !where                       ? VX_PLACE_ARENA
                             : where == WORKER_RIG_DEVICE ? VX_PLACE_DEVICE
                                                          : VX_PLACE_SYSTEM,
                             where, 0};
    ck_assert_uint_le(memory->used + bytes,
                      where ? WORKER_RIG_REGION_BYTES : ARENA_BYTES);
    if (data)
        memcpy(memory->at + memory->used, data, bytes);
    else
        memset(memory->at + memory->used, 0xe7, bytes);
    if (at) *at = memory->at + memory->used;
    if (!where) place.offset += worker_rig.slot.offset;
    memory->used += vx_round_up(bytes + 1, 16);
    return place;
}

void worker_rig_forget(void)
{
    for (i32 i = 0; i <= WORKER_RIG_DEVICE; i++) worker_rig.memories[i].used = 0;
}

struct vx_run_item worker_rig_item(struct worker_asked *asked, const i32 *where)
{
    const struct vx_item *item = &asked->request->item;
    size_t n = (size_t)item->voxels;
    struct vx_run_item out = {
        .voxels = item->voxels,
        .coords_columns = item->coords_columns,
        .feats_dtype = (i32)item->feats_dtype,
        .coords = put(where[0], item->coords, n * (size_t)item->coords_columns * 4, NULL),
        .feats = put(where[1], item->feats,
                     n * VX_RIG_CHANNELS * vx_dtype_bytes(item->feats_dtype), NULL),
    };
    for (i32 o = 0; o < VX_OUTPUTS_MAX; o++) {
        if (o < worker_rig.signature.outputs_count && where[2 + o] >= 0)
            out.outputs[o] = put(where[2 + o], NULL, output_bytes(o, item->voxels),
                                 &asked->outputs[o]);
    }
    return out;
}

u64 worker_rig_say_run(const struct vx_run_item *items, i32 count)
{
    static struct vx_message_run run;
    run.head = (struct vx_message_head){VX_MESSAGE_RUN, 0, ++worker_rig.batch};
    run.items_count = count;
    memcpy(run.items, items, (size_t)count * sizeof *items);
    ck_assert(
        !vx_channel_send(worker_rig.fd, &run.head, vx_message_run_bytes(count)).fault);
    return worker_rig.batch;
}

const i32 worker_rig_in_arena[WORKER_RIG_TENSORS];

/* Stores the answer that the request has alone, in the arena, in the request. */
static void answer_alone(struct worker_asked *asked)
{
    worker_rig_forget();
    struct vx_run_item item = worker_rig_item(asked, worker_rig_in_arena);
    worker_rig_expect(VX_MESSAGE_DONE, worker_rig_say_run(&item, 1));
    ck_assert_int_eq(worker_rig.in.done.items[0].code, VX_CODE_OK);
    for (i32 o = 0; o < worker_rig.signature.outputs_count; o++)
        memcpy(asked->request->outputs[o], asked->outputs[o],
               output_bytes(o, asked->request->item.voxels));
}

struct worker_asked worker_rig_ask(u64 seed, i64 n)
{
    static const enum vx_dtype dtypes[] = {VX_DTYPE_F32, VX_DTYPE_F16, VX_DTYPE_BF16};
    struct worker_asked asked = {
        .request = vx_rig_request(seed, n, seed % 2 ? 3 : 4, dtypes[seed % 3])};
    answer_alone(&asked);
    return asked;
}

void worker_rig_check(const struct worker_asked *asked, const i32 *where)
{
    for (i32 o = 0; o < worker_rig.signature.outputs_count; o++)
        if (where[2 + o] >= 0)
            ck_assert_msg(!memcmp(asked->outputs[o], asked->request->outputs[o],
                                  output_bytes(o, asked->request->item.voxels)),
                          "output %d in %d", o, where[2 + o]);
}

void worker_rig_map_all(void)
{
    static const u64 offsets[] = {0, 0, 4096 + 64, 1600, 0};
    for (i32 region = 1;
         region <= (worker_rig.fake ? WORKER_RIG_DEVICE : WORKER_RIG_SYSTEM); region++) {
        worker_rig_memory_open(region, offsets[region]);
        worker_rig_say_map(region, 100 + (u64)region);
    }
    /* The memory is mapped in the order in which it becomes ready. */
    for (u32 left = worker_rig.fake ? 30 : 14; left;) {
        ck_assert(worker_rig_hear(VX_WAIT_SECONDS * 1000));
        ck_assert_int_eq(worker_rig.in.head.kind, VX_MESSAGE_MAPPED);
        ck_assert_int_eq(worker_rig.in.mapped.code, VX_CODE_OK);
        ck_assert_uint_eq(worker_rig.in.head.serial,
                          100 + (u64)worker_rig.in.mapped.region);
        ck_assert(left >> worker_rig.in.mapped.region & 1);
        left &= ~(1u << worker_rig.in.mapped.region);
    }
}
