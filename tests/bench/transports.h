/* transports - what the parts of bench_transports share.
 *
 *   transports.c         options, the order of things, the table
 *   transports_client.c  through the daemon: over the wire, shared memory, device memory
 *   transports_device.c  memory of a GPU that another process can open
 *   transports_engine.c  in this process, without a daemon: the floor, and the right answer
 *
 * The same request is sent repeatedly, one at a time.  Its time is what a caller waits for:
 * packing, the round trip, unpacking; the inputs already lie where their transport needs them.
 * Before each request the output's memory is overwritten, and after it every byte is compared with
 * the answer that the engine gave in this process; on a device, only for some of the requests.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_BENCH_TRANSPORTS_H
#define VX_TESTS_BENCH_TRANSPORTS_H

#include "clients/c/voxel.h"
#include "engine/engine.h"

#define TRANSPORTS_SAMPLES_MAX 20000
#define TRANSPORTS_NAME_BYTES  VX_NAME_BYTES

enum transport {
    TRANSPORT_TCP,
    TRANSPORT_UNIX,
    TRANSPORT_SHM,
    TRANSPORT_DEVICE,
    TRANSPORT_UNNAMED, /* in this process, with coordinates that are new to it */
    TRANSPORT_PROCESS, /* in this process, by coords_ref */
    TRANSPORTS_COUNT,
};

struct transports_options {
    const char *tcp, *unix_socket, *repository, *device, *cases, *kernel_cache;
    int64_t requests, warmup, device_bytes, cache_bytes;
    double seconds;
};

/* The request and the expected answer. */
struct subject {
    char model[TRANSPORTS_NAME_BYTES], output[TRANSPORTS_NAME_BYTES];
    char coords_name[TRANSPORTS_NAME_BYTES], feats_name[TRANSPORTS_NAME_BYTES];
    i64 voxels;
    i32 channels;
    size_t coords_bytes, feats_bytes, output_bytes;
    i32 *coords;
    u16 *feats;   /* FP16 */
    u8 *expected; /* the answer of the engine in this process */
    bool known;   /* expected is there */
};

struct samples {
    i64 ns[TRANSPORTS_SAMPLES_MAX];
    i64 count;
    i64 wrong;
    char skipped[1400]; /* why the transport is not measured; "" = it is */
    bool failed;
};

/* The engine in this process, with one model at a time. */
struct floor;
struct floor *floor_open(const struct transports_options *options);
void floor_close(struct floor *floor);
/* Loads the subject's model and fills its names, channels and output_bytes' factor. */
void floor_load(struct floor *floor, const char *model, struct subject *subject);
void floor_unload(struct floor *floor);
void floor_measure(struct floor *floor, struct subject *subject, bool named,
                   struct samples *samples);

void client_measure(const struct transports_options *options, struct subject *subject,
                    enum transport transport, struct samples *samples);

/* False, and a sentence in samples, when there is no such memory here. */
struct device_memory;
struct device_memory *device_memory_open(const char *device, size_t bytes,
                                         struct voxel_device_memory *shared, char *why,
                                         size_t why_bytes);
void device_memory_write(struct device_memory *memory, size_t offset, const void *data,
                         size_t bytes);
void device_memory_read(struct device_memory *memory, size_t offset, void *data,
                        size_t bytes);
void device_memory_fill(struct device_memory *memory, size_t offset, u8 value,
                        size_t bytes);
void device_memory_close(struct device_memory *memory);

/* Helpers of all. */
int transports_device_index(const char *device); /* "cuda:1" is 1 */
void transports_need(bool good, const char *what, const char *why);
size_t transports_aligned(size_t bytes);
void transports_spoil(u8 *memory, size_t bytes);
/* True while more requests are to be sent; warm-up included. */
bool transports_more(const struct transports_options *options, i64 done, i64 begin_ns);
/* A time counts when the warm-up is over; a wrong answer always counts. */
void transports_add(const struct transports_options *options, struct samples *samples,
                    i64 done, i64 ns);

#endif
