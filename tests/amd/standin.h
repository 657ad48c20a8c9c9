/* amd/standin - what the files of the stand-in for AMD's libamdhip64 share.
 *
 * Device memory is the host's, between pages that nobody may touch.  Each stream has a
 * thread of its own, which runs kernels on fibers: a launch returns before it has run.  As
 * on a device, the launch of a kernel that fails succeeds, and later calls fail.  Stricter
 * than HIP: host and device pointers may not be exchanged, and copies end in their buffers.
 *
 * VX_STANDIN_SETTINGS in the environment, words with spaces between them:
 *
 *   arch=gfx942          of every device: gfx90a, gfx942, gfx1100, gfx1200
 *   devices=2            0 = none: hipInit answers 100
 *   memory=1073741824    bytes of each device
 *   seed=7               of the schedules; 0 = threads in their order
 *   version=60300000     of the driver
 *   fail_call=7          this call answers fail_code ...
 *   fail_code=2          ... (HIP's number) ...
 *   fail_count=1         ... and so many calls from there on
 *   lose_launch=60       the kernel of this launch takes its device with it: 700 from then on
 *   fault_device=0       faults are for calls of this device only; -1 = of any
 *
 * Owner    objects are the caller's until it closes them.
 * Thread   any; standin.lock guards all of it.
 * Limits   below.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_AMD_STANDIN_H
#define VX_TESTS_AMD_STANDIN_H

#include "tests/amd/fibers.h"
#include "tests/amd/hip.h"
#include "tests/amd/load.h"

#include <pthread.h>

#define STANDIN_DEVICES_MAX 8
#define STANDIN_HANDLE      "voxeld-amd-ipc\0"
/* A block of the pool holds any object; the largest is a launch with its arguments. */
#define STANDIN_BLOCK_BYTES 2048
#define STANDIN_ARGS_BYTES  1536

enum standin_code {
    STANDIN_INVALID_VALUE = 1,
    STANDIN_OUT_OF_MEMORY = 2,
    STANDIN_NO_DEVICE = 100,
    STANDIN_INVALID_DEVICE = 101,
    STANDIN_BAD_IMAGE = 200,
    STANDIN_NO_BINARY = 209,
    STANDIN_INVALID_HANDLE = 400,
    STANDIN_ILLEGAL_STATE = 401,
    STANDIN_NOT_FOUND = 500,
    STANDIN_NOT_READY = 600,
    STANDIN_ILLEGAL_ADDRESS = 700,
    STANDIN_PINNED_ALREADY = 712,
    STANDIN_NOT_PINNED = 713,
    STANDIN_LAUNCH_FAILED = 719,
    STANDIN_NOT_SUPPORTED = 801,
    STANDIN_CAPTURE_UNSUPPORTED = 900,
    STANDIN_CAPTURE_ISOLATION = 905,
};

/* "stST", "stEV", "stMO", "stFU", "stGR": a stray pointer is not taken for an object. */
enum standin_kind {
    STANDIN_STREAM = 0x73745354,
    STANDIN_EVENT = 0x73744556,
    STANDIN_MODULE = 0x73744d4f,
    STANDIN_FUNCTION = 0x73744655,
    STANDIN_GRAPH = 0x73744752,
};

/* What an IPC handle holds: whole pages of a file that another process has open. */
struct standin_handle {
    char word[16];
    u64 process, fd, bytes;
};

struct standin_settings {
    char arch[16];
    i64 devices, memory, seed, version;
    i64 fail_call, fail_code, fail_count, lose_launch, fault_device;
};

struct standin {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* an operation has ended, or was put on a stream */
    struct standin_settings settings;
    i64 calls, launches;
    int lost[STANDIN_DEVICES_MAX]; /* the code that every call answers; 0 = it is well */
    i64 used[STANDIN_DEVICES_MAX];
    i64 blocks;      /* of the pool that are in use */
    i64 kernels_run; /* on all devices, for their seeds */
    char why[AMD_WHY_BYTES];
};
extern struct standin standin;

/* One operation of a stream or a graph. */
struct standin_node {
    struct standin_node *next;
    enum { NODE_LAUNCH, NODE_COPY, NODE_FILL, NODE_RECORD, NODE_AFTER } kind;
    u32 value;
    void *to;
    const void *from;
    size_t bytes; /* of a fill: words */
    struct standin_event *event;
    i64 ticket; /* which record of the event */
    bool loses; /* of a launch: the device does not survive it */
    struct amd_launch launch;
    _Alignas(64) u8 args[STANDIN_ARGS_BYTES];
};
struct standin_nodes {
    struct standin_node *first, **last;
};
struct standin_stream {
    enum standin_kind kind;
    int device;
    struct standin_stream *next; /* of all streams */
    pthread_t thread;
    struct standin_nodes queue;
    bool busy, closing;
    struct standin_graph *capture; /* NULL = none in progress */
};
struct standin_event {
    enum standin_kind kind;
    i64 tickets, happened; /* records that were put on streams; that have happened */
    i64 ns;
};
struct standin_graph {
    enum standin_kind kind;
    struct standin_nodes nodes;
};

/* --- state (standin_state.c) --- */
int standin_device(void); /* of this thread */
/* Begins a call: takes the lock, counts it, and answers the fault that is due; the lock is
 * held in any case until standin_leave(code), which returns the code. */
int standin_enter(void);
int standin_leave(int code);
/* With the lock: the device answers `code` from now on, if it was well. */
void standin_lose(int device, int code, const char *why);
/* With the lock: a zeroed block of the pool, and back. */
void *standin_take(void);
void standin_give(void *block);
bool standin_is(const void *object, enum standin_kind kind);

/* --- memory (standin_memory.c): with the lock --- */
bool standin_holds(u64 address, size_t bytes);

/* --- streams (standin_stream.c) --- */
/* With the lock: until no stream of the device has work. */
void standin_wait_idle(int device);
/* With the lock: queues the node, a block of the pool, or adds it to the capture. */
void standin_put(struct standin_stream *stream, struct standin_node *node);
void standin_append(struct standin_nodes *nodes, struct standin_node *node);

#endif
