/* load - what the parts of the load generator share.
 *
 *   load.c         options, and the order of things
 *   load_work.c    the requests of a mix, made before the run
 *   load_bad.c     requests that must be refused; load_vanish.c: a client that goes away
 *   load_drive.c   threads, closed and open loop; load_call.c: one call from start to end
 *   load_answer.c  what an answer must be; load_stats.c: times, counts, the report
 *
 * Every byte that is sent is made before the run and is not changed until its end, so gRPC gets
 * slices without owners.  A thread owns its channels, its completion queue and its counts; in an
 * open loop a second thread beside it starts the calls, at times drawn beforehand.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_BENCH_LOAD_H
#define VX_TESTS_BENCH_LOAD_H

#include "clients/c/infer_wire.h"
#include "tests/support/voxels.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include <grpc/grpc.h>

/* libgrpc is not instrumented: ThreadSanitizer must be told that writes before a call was
 * handed to gRPC are visible to the thread that gets the call back. */
#ifdef __SANITIZE_THREAD__
void __tsan_acquire(void *address);
void __tsan_release(void *address);
#define LOAD_TAG_GIVE(call_) __tsan_release(call_)
#define LOAD_TAG_TAKE(call_) __tsan_acquire(call_)
#else
#define LOAD_TAG_GIVE(call_) ((void)(call_))
#define LOAD_TAG_TAKE(call_) ((void)(call_))
#endif

#define LOAD_KINDS_MAX   8
#define LOAD_THREADS_MAX 32
#define LOAD_CODES       17
#define LOAD_SLICES_MAX  8
#define LOAD_TEXT_BYTES  256

struct load_options {
    const char *server, *model, *mix, *dtype, *allow;
    int64_t channels_in, geometries, feats;
    int64_t clients, channels, threads, requests, deadline_ms, seed, in_flight;
    double rate, seconds, warmup, bad;
    bool refs, json;
};

/* A message, ready to go. */
struct load_body {
    grpc_slice slices[LOAD_SLICES_MAX];
    size_t slices_count;
    size_t bytes;
};

/* One of the distinct good requests. */
struct load_request {
    struct load_body full;                    /* with --refs it asks for a coords_ref */
    _Atomic(const struct load_body *) by_ref; /* feats alone; NULL: no ref yet */
    char ref[VOXEL_REF_BYTES_MAX];            /* under the work's lock */
    struct voxel_tensor inputs[2];            /* coords, feats */
    int64_t voxels;
    uint64_t hash; /* of the first answer, to a request that ran alone */
    size_t answer_bytes;
};

struct load_kind {
    char name[32];
    double weight_sum; /* of this and those before it */
    int64_t first, count;
};

/* The fault of a bad request. */
enum load_bad {
    BAD_EXPIRED,
    BAD_CANCELLED,
    BAD_VANISHED,
    BAD_GIANT,
    BAD_EMPTY,
    BAD_DUPLICATE,
    BAD_RANGE,
    BAD_SHAPE,
    LOAD_BADS,
    LOAD_GOOD = LOAD_BADS
};
extern const char *const load_bad_names[LOAD_BADS];
extern const uint32_t load_bad_codes[LOAD_BADS]; /* a bit for each status that is right */

struct load_work {
    const struct load_options *options;
    const char *method;
    struct load_kind kinds[LOAD_KINDS_MAX];
    int32_t kinds_count;
    struct load_request *requests;
    int64_t requests_count;
    struct load_body bad[LOAD_BADS]; /* the kinds that have a body of their own */
    struct load_request empty;       /* BAD_EMPTY is answered with OK */
    pthread_mutex_t lock;
    struct load_memory *memory; /* the memory of all bodies */
};

bool load_work_open(struct load_work *work, const struct load_options *options);
void load_work_close(struct load_work *work);
const struct load_request *load_work_pick(const struct load_work *work,
                                          struct voxels_random *random);
/* Stores the server's coords_ref for the request's geometry.  Any thread. */
void load_work_learn(struct load_work *work, const struct load_request *request,
                     const char *ref);
/* Memory that lives until load_work_close; ends the program when there is none. */
void *load_take(struct load_work *work, size_t bytes);
/* False when the request cannot be packed. */
bool load_body_pack(struct load_work *work, const struct voxel_request *request,
                    struct load_body *body);
bool load_bad_open(struct load_work *work);
/* Begins to send a request on a connection of its own, then closes it.  False when the server
 * did not accept a single byte. */
bool load_vanish(const struct load_work *work, const struct load_body *body,
                 struct voxels_random *random);

struct load_answer {
    uint64_t hash; /* of names, types, shapes and bytes of all outputs */
    size_t bytes;
    char ref[VOXEL_REF_BYTES_MAX];
};
struct load_spans {
    struct voxel_span *list;
    size_t room;
};
/* False when the message is no valid answer. */
bool load_answer_read(grpc_byte_buffer *message, bool is_infer, struct load_spans *spans,
                      struct load_answer *answer);

/* Times in buckets of less than one percent. */
#define LOAD_BUCKETS_PER_OCTAVE 128
#define LOAD_BUCKETS            (LOAD_BUCKETS_PER_OCTAVE * 36)
struct load_stats {
    int64_t buckets[LOAD_BUCKETS];
    int64_t longest_ns, latest_send_ns;
    int64_t answered, voxels; /* inside the time that is counted */
    int64_t bytes_in, bytes_out;
    int64_t codes[LOAD_CODES]; /* of good requests, over the whole run */
    int64_t bads[LOAD_BADS][LOAD_CODES];
    int64_t vanished;
    int64_t wrong, unexpected, not_sent;
    int64_t refs_used, refs_resent, refs_none;
    int64_t last_ns; /* when the last counted answer came */
    char first_failure[LOAD_TEXT_BYTES];
};
void load_stats_time(struct load_stats *stats, int64_t ns);
void load_stats_add(struct load_stats *sum, const struct load_stats *stats);
void load_stats_print(const struct load_stats *stats, const struct load_options *options,
                      double seconds);
bool load_stats_good(const struct load_stats *stats);

/* One call at a time. */
struct load_call {
    struct load_call *next;
    struct load_thread *thread;
    int32_t channel;
    const struct load_request *request; /* NULL: an answer is always wrong */
    const struct load_body *body;
    enum load_bad bad;
    bool by_ref, resent, by_itself;
    int64_t intended_ns;
    grpc_call *rpc;
    grpc_metadata_array initial, trailing;
    grpc_status_code status;
    grpc_slice details;
    grpc_byte_buffer *reply;
};

struct load_thread {
    struct load_drive *drive;
    int32_t index;
    grpc_completion_queue *queue;
    struct load_call *calls; /* all; the free ones in `spare` */
    int64_t calls_count;
    pthread_mutex_t lock; /* spare, to_cancel */
    struct load_call *spare;
    struct load_call *to_cancel; /* when another call ends */
    atomic_llong under_way;
    atomic_bool sender_done;
    pthread_t thread, sender;
    struct voxels_random random;
    struct load_spans spans;
    struct load_stats stats;        /* the queue's thread */
    struct load_stats sender_stats; /* the sender's */
};

struct load_channel {
    grpc_channel *channel;
    void *method;
};
struct load_drive {
    struct load_work *work;
    const struct load_options *options;
    struct load_channel *channels;
    struct load_thread *threads;
    uint32_t allowed;      /* codes that good requests may have too */
    int64_t count_from_ns; /* answers that come in this time are counted, */
    int64_t count_to_ns;   /* and after it nothing is sent; */
    atomic_bool counted; /* but of a slow server the first answer is, whenever it comes */
    atomic_llong requests_left;
    /* Clients that vanish wait for the server, so not on a queue's thread. */
    pthread_t vanisher;
    sem_t to_vanish;
    atomic_bool over;
    struct load_stats vanisher_stats;
};

/* Runs the whole load; false when it could not begin. */
bool load_drive_run(struct load_work *work, struct load_stats *stats, double *seconds);

/* Draws a request for the call and starts it; a client that vanishes is left to the thread for
 * them, and another request is drawn.  `stats` is the calling thread's. */
void load_call_next(struct load_call *call, struct voxels_random *random,
                    struct load_stats *stats);
/* Starts the call with the request that it already has. */
bool load_call_start(struct load_call *call, int64_t deadline_us, bool wait_for_ready);
/* The call has ended: checks and counts its answer.  False when it was started once more. */
bool load_call_finish(struct load_call *call);

int64_t load_clock_ns(void);
int64_t load_code_of(const char *name); /* -1: none of that name */

#endif
