/* worker_rig - a worker on a thread, the front's end of its IPC channel, and clients' memory for
 * requests.
 *
 *   worker_rig_begin("fake:0");                       a model is loaded
 *   worker_rig_map_all();
 *   struct worker_asked asked = worker_rig_ask(seed, n);      its answer, alone in the arena
 *   struct vx_run_item item = worker_rig_item(&asked, where);     0 arena, else a region
 *   worker_rig_expect(VX_MESSAGE_DONE, worker_rig_say_run(&item, 1));
 *   worker_rig_check(&asked, where);
 *   worker_rig_end();
 *
 * A check of a model's files that always succeeds replaces the real one: same name, linked first.
 *
 * Owner    one worker for the test that runs; a request is the caller's: vx_free.
 * Thread   the test's, which is the front's loop.
 * Limits   WORKER_RIG_REGION_BYTES of a region.
 * Fails    with the test.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_SUPPORT_WORKER_RIG_H
#define VX_TESTS_SUPPORT_WORKER_RIG_H

#include "server/ipc/channel.h"
#include "server/ipc/shared.h"
#include "server/worker/worker.h"
#include "tests/support/engine_rig.h"

#include <pthread.h>
#include <stdatomic.h>

#define WORKER_RIG_REGION_BYTES ((u64)2 << 20)
#define WORKER_RIG_SYSTEM       3 /* regions 1 .. 3; then one of the device */
#define WORKER_RIG_DEVICE       4

/* Memory that a tensor may lie in; [0] is the arena. */
struct worker_memory {
    int fd;
    u64 offset, bytes; /* of the object */
    u8 *whole, *at;
    u64 used;
};
struct worker_rig {
    int fd, fds[2];
    bool fake;
    struct vx_shared *shared;
    struct vx_config config;
    struct vx_worker_start start;
    pthread_t thread;
    struct vx_place slot;
    union vx_message in;
    struct vx_signature signature;
    struct worker_memory memories[WORKER_RIG_DEVICE + 1];
    u64 batch;
};
extern struct worker_rig worker_rig;

/* While it is set, the worker's main thread is checking a model's files. */
extern atomic_bool worker_rig_reading;

void worker_rig_begin(const char *device);
/* Loads the model once more: the answer is LOADED 78. */
void worker_rig_say_load(void);
void worker_rig_end(void);

/* False: no message in that time. */
bool worker_rig_hear(int milliseconds);
/* Expects this as the next message that is not about progress. */
void worker_rig_expect(enum vx_message_kind kind, u64 batch);
void worker_rig_expect_mapped(i32 region, u64 use, enum vx_code code);
/* Waits until the worker has read all messages so far. */
void worker_rig_sync(void);

void worker_rig_memory_open(i32 region, u64 offset);
void worker_rig_memory_close(i32 region);
void worker_rig_say_map(i32 region, u64 use);
void worker_rig_say_unmap(i32 region);
/* Maps all regions that the device can use, and waits for MAPPED of each. */
void worker_rig_map_all(void);

/* A request with its answer, and where its outputs were requested. */
struct worker_asked {
    struct vx_rig_request *request;
    const u8 *outputs[VX_OUTPUTS_MAX];
};
/* Where the tensors of an item lie: coords, feats, outputs; -1 = not wanted. */
#define WORKER_RIG_TENSORS (2 + VX_OUTPUTS_MAX)
extern const i32 worker_rig_in_arena[WORKER_RIG_TENSORS];

struct worker_asked worker_rig_ask(u64 seed, i64 n);
struct vx_run_item worker_rig_item(struct worker_asked *asked, const i32 *where);
void worker_rig_forget(void); /* forgets all tensors that were put into memory */
u64 worker_rig_say_run(const struct vx_run_item *items, i32 count);
void worker_rig_check(const struct worker_asked *asked, const i32 *where);

#endif
