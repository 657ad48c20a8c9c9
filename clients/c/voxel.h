/* voxel - talks to voxeld, or to any Open Inference Protocol v2 server, over gRPC.
 *
 * A client is one connection.  Requests borrow the caller's tensors: their bytes go to
 * the socket from where they are, without a copy.  Answers are copied once, from the
 * bytes as they came into memory of the library or into memory the caller names.  With a
 * server on the same host tensors may lie in shared memory instead: then none are sent.
 *
 *   struct voxel_client *client;
 *   struct voxel_error error;
 *   if (voxel_client_open("127.0.0.1:8001", NULL, &client, &error)) return fail(&error);
 *   struct voxel_tensor inputs[] = {
 *       voxel_tensor_make("coords", VOXEL_INT32, n, 4, coords),
 *       voxel_tensor_make("feats", VOXEL_FP32, n, 1, feats),
 *   };
 *   struct voxel_request request = {
 *       .model = "normals", .inputs = inputs, .inputs_count = 2};
 *   struct voxel_answer *answer;
 *   if (voxel_infer(client, &request, &answer, &error)) return fail(&error);
 *   const struct voxel_tensor *normals = voxel_answer_find(answer, "normals");
 *   ...
 *   voxel_answer_free(answer);
 *   voxel_client_close(client);
 *
 * Shapes   coords INT32 [N,4]: the sample (0..511), then three axes (-131072..131071), each
 *          voxel once; or [N,3]: three axes, all of sample 0.  The axes come in the order
 *          that the network was trained with: spconv's [b,z,y,x] goes as it is.  feats
 *          FP32, FP16 or BF16 [N,C].  Rows of an answer are in the order of the request's.
 *          All tensors are little-endian, row-major, without padding.
 * Units    times end in _us (microseconds) or _ns, sizes in _bytes.
 * Owner    a client, an answer and an info belong to whoever got them, to be closed or
 *          freed; what they point to belongs to them.
 * Thread   every function may be called from any thread, and many calls may be under way
 *          at once, except: voxel_client_close is called once, when no other call is
 *          running.  Callbacks are described at voxel_infer_async.
 * Limits   a message is at most 2^31-1 bytes; rank at most VOXEL_RANK_MAX.
 * Fails    every function that can fail returns a gRPC status code (0 is success) and,
 *          when `error` is not NULL, leaves there the code and a sentence: the server's
 *          own when it was the server that refused.  An answer that contradicts its request
 *          (another model, version or id, a missing output, other rows than were sent,
 *          bytes that are not those of its shapes) is INTERNAL, never an answer.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_H
#define VOXEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Errors. */

/* The status codes of gRPC, with its numbers. */
enum voxel_code {
    VOXEL_OK = 0,
    VOXEL_CANCELLED = 1,
    VOXEL_UNKNOWN = 2,
    VOXEL_INVALID_ARGUMENT = 3,
    VOXEL_DEADLINE_EXCEEDED = 4,
    VOXEL_NOT_FOUND = 5,
    VOXEL_ALREADY_EXISTS = 6,
    VOXEL_PERMISSION_DENIED = 7,
    VOXEL_RESOURCE_EXHAUSTED = 8,
    VOXEL_FAILED_PRECONDITION = 9,
    VOXEL_ABORTED = 10,
    VOXEL_OUT_OF_RANGE = 11,
    VOXEL_UNIMPLEMENTED = 12,
    VOXEL_INTERNAL = 13,
    VOXEL_UNAVAILABLE = 14,
    VOXEL_DATA_LOSS = 15,
    VOXEL_UNAUTHENTICATED = 16
};

/* "INVALID_ARGUMENT"; "UNKNOWN" for a number that gRPC does not define. */
const char *voxel_code_name(enum voxel_code code);

#define VOXEL_ERROR_BYTES 1024
struct voxel_error {
    enum voxel_code code;
    char text[VOXEL_ERROR_BYTES]; /* a sentence, NUL-terminated, cut when longer */
};

/* Tensors. */

enum voxel_type {
    VOXEL_NONE,
    VOXEL_BOOL,
    VOXEL_UINT8,
    VOXEL_UINT16,
    VOXEL_UINT32,
    VOXEL_UINT64,
    VOXEL_INT8,
    VOXEL_INT16,
    VOXEL_INT32,
    VOXEL_INT64,
    VOXEL_FP16,
    VOXEL_FP32,
    VOXEL_FP64,
    VOXEL_BF16,
    VOXEL_BYTES
};

const char *voxel_type_name(enum voxel_type type); /* "FP32", as on the wire */
enum voxel_type voxel_type_of(const char *name);   /* VOXEL_NONE when unknown */
size_t voxel_type_bytes(enum voxel_type type);     /* of one element; 0 for NONE, BYTES */

struct voxel_region; /* shared memory, below */

#define VOXEL_RANK_MAX 8
struct voxel_tensor {
    const char *name;
    enum voxel_type type;
    int32_t rank;
    int64_t shape[VOXEL_RANK_MAX];
    const void *data; /* may be NULL when bytes is 0 */
    size_t bytes;     /* product of shape times the element's size */
    /* Not NULL: the tensor lies there, and `data` of an input is not looked at. */
    const struct voxel_region *region;
    size_t region_offset;
};

/* A [rows, columns] tensor over `data`, which is borrowed.  Nothing to release. */
struct voxel_tensor voxel_tensor_make(const char *name, enum voxel_type type,
                                      int64_t rows, int64_t columns, const void *data);

/* The connection. */

struct voxel_client;

struct voxel_options {
    int32_t threads;     /* 0: the caller polls; 1..16: the library runs the callbacks */
    int64_t deadline_us; /* for calls that give none; 0 = wait for ever */
    bool wait_for_ready; /* calls wait for a server that is not up yet, up to their
                            deadline */
};
#define VOXEL_THREADS_MAX 16

/* `address` is "host:port", "[v6]:port" or "unix:path".  Opening does not connect: the first call
 * does, so a server that is away is UNAVAILABLE there.  From then on the client connects by
 * itself, on a thread that ends when there is a connection: a server that comes up is found
 * within about a second of it, also by a program that only calls and sleeps.  Until then calls
 * fail at once, or with wait_for_ready wait.  A connection that was lost is made again by the
 * next call; a call that its server left without an answer is UNAVAILABLE too, and CANCELLED
 * only one that this client took back (voxel_client_close) or the server says is, with its own
 * sentence.  `options` may be NULL: all zero.
 * Fails INVALID_ARGUMENT (address, options), RESOURCE_EXHAUSTED (memory, threads). */
enum voxel_code voxel_client_open(const char *address,
                                  const struct voxel_options *options,
                                  struct voxel_client **client,
                                  struct voxel_error *error);

/* Cancels what is in flight, runs those callbacks (CANCELLED), then releases everything.
 * NULL is allowed.  Answers already given stay valid.  Not from a callback. */
void voxel_client_close(struct voxel_client *client);

/* Inference. */

/* Where an output shall go; without one the library allocates. */
struct voxel_place {
    const char *output;
    void *memory; /* borrowed until the call ends; then the output's data points here */
    size_t bytes; /* an output that is larger makes the call fail OUT_OF_RANGE */
    /* Not NULL: the server writes it there, `memory` is not looked at, and one that is
     * larger is the server's to refuse.  The output is then wanted as if `outputs` named
     * it too: without any in `outputs`, those with such a place are all that come. */
    const struct voxel_region *region;
    size_t region_offset;
};

struct voxel_request {
    const char *model;
    int64_t version; /* 0 = the highest that is ready */
    const char *id;  /* must come back, and is in the server's log; NULL = none */

    const struct voxel_tensor
        *inputs; /* data is borrowed until the call ends, see below */
    int32_t inputs_count;
    const char *const *outputs; /* names wanted; none = all the model has */
    int32_t outputs_count;
    const struct voxel_place *places;
    int32_t places_count;

    uint64_t priority;  /* 0 = the server's default, 1 = highest */
    int64_t timeout_us; /* longest wait in the server's queue; 0 = none */
    int64_t
        deadline_us; /* longest wait for the answer, from now; 0 = the client's default */
    bool timing;     /* ask for queue and compute times among the answer's parameters */

    /* NULL = not said.  "" = name these coords in the answer (its text parameter
     * coords_ref, when the server keeps them).  Such a name = those coords again: the
     * input coords is then left out, and FAILED_PRECONDITION says that the server has
     * forgotten them and wants them.  See also voxel_infer_geometry. */
    const char *coords_ref;
};

enum voxel_parameter_kind {
    VOXEL_PARAMETER_BOOL,
    VOXEL_PARAMETER_INT64,
    VOXEL_PARAMETER_UINT64,
    VOXEL_PARAMETER_DOUBLE,
    VOXEL_PARAMETER_STRING
};
struct voxel_parameter {
    const char *name;
    enum voxel_parameter_kind kind;
    int64_t int64; /* BOOL: 0 or 1 */
    uint64_t uint64;
    double number;
    const char *text; /* "" unless STRING */
};

/* Everything it points to belongs to it, except outputs in places of the caller. */
struct voxel_answer {
    const char *model;
    const char *version;
    const char *id;
    const struct voxel_tensor
        *outputs; /* data is 64-byte aligned in the library's memory */
    int32_t outputs_count;
    const struct voxel_parameter *parameters;
    int32_t parameters_count;
    size_t sent_bytes; /* the messages, without framing */
    size_t received_bytes;
    int64_t round_trip_ns; /* from the call's start to its end, before decoding */
};

/* Sends and waits.  On success *answer is the caller's, to be freed; on failure it is
 * NULL. Everything in `request` is borrowed until it returns. */
enum voxel_code voxel_infer(struct voxel_client *client,
                            const struct voxel_request *request,
                            struct voxel_answer **answer, struct voxel_error *error);

/* What coordinates they are, in 16 bytes; all zero = not known. */
struct voxel_digest {
    uint64_t words[2];
};

/* The name of a geometry that is sent again and again; all zero to begin with. */
#define VOXEL_REF_BYTES_MAX 64
struct voxel_geometry {
    char name[VOXEL_REF_BYTES_MAX]; /* "" = the server has not named it yet */
    struct voxel_digest digest;     /* of the coords that it is the name of */
    bool resent; /* out: there was a name, and the coords went again all the same */
};

/* As voxel_infer, but the coordinates (the INT32 input) go over the wire only when the
 * server does not know them by the name in `geometry`: the first time, when it has
 * forgotten them, and when they are others than those it named, also in their order: then
 * `geometry` names these from now on.  To see that, they are read each time (some ms for a
 * million).  A name without its digest is not used, so copy the struct whole.
 * request->coords_ref is not looked at.  A geometry belongs to one thread at a time. */
enum voxel_code voxel_infer_geometry(struct voxel_client *client,
                                     const struct voxel_request *request,
                                     struct voxel_geometry *geometry,
                                     struct voxel_answer **answer,
                                     struct voxel_error *error);

/* The end of an asynchronous call.  `answer` is the receiver's, to be freed; NULL when
 * error->code is not VOXEL_OK.  `error` lives for the callback only. */
typedef void (*voxel_on_answer)(void *context, struct voxel_answer *answer,
                                const struct voxel_error *error);

/* Sends and returns.  `on_answer` runs exactly once if and only if this returned
 * VOXEL_OK: on a thread of the library (options.threads > 0) or inside voxel_client_poll,
 * without locks held, so that it may submit the next request.  It must not block: answers
 * wait behind it. The struct request, its names and its list of tensors are borrowed for
 * the call only; the tensors' data and the places' memory are borrowed until the
 * callback.  Any number may be in flight. */
enum voxel_code voxel_infer_async(struct voxel_client *client,
                                  const struct voxel_request *request,
                                  voxel_on_answer on_answer, void *context,
                                  struct voxel_error *error);

/* Runs callbacks on this thread: returns after the first that came and those that came
 * with it, or after `timeout_us` (0 = do not wait, negative = no limit).  Returns how
 * many ran, at once with 0 when nothing is in flight.  Not for a client with threads. */
int32_t voxel_client_poll(struct voxel_client *client, int64_t timeout_us);

/* Asynchronous calls submitted and not yet called back. */
int64_t voxel_client_in_flight(const struct voxel_client *client);

const struct voxel_tensor *voxel_answer_find(const struct voxel_answer *answer,
                                             const char *output); /* NULL when absent */
const struct voxel_parameter *
voxel_answer_find_parameter(const struct voxel_answer *answer, const char *name);
void voxel_answer_free(struct voxel_answer *answer);

/* Shared memory, with a server on the same host that allows it.
 *
 *   struct voxel_region *region;
 *   if (voxel_region_open(client, 1 << 20, &region, &error)) return fail(&error);
 *   int32_t *coords = voxel_region_memory(region);
 *   ...
 *   inputs[0] = voxel_tensor_make("coords", VOXEL_INT32, n, 4, coords);
 *   inputs[0].region = region;
 *   struct voxel_place place = {.output = "normals", .bytes = n * 12, .region = region,
 *                               .region_offset = 1 << 19};
 *   ... voxel_infer ...
 *   voxel_region_close(region);
 *
 * The server knows a region by its connection: no other client can name it, and it is gone
 * when the connection is.  Then requests fail NOT_FOUND, and voxel_region_renew tells the
 * new connection of it.  Nothing of it has a name in the file system but while it is being
 * registered, so a program that dies leaves nothing behind.
 *
 * A call that was given up (DEADLINE_EXCEEDED, CANCELLED) may still be running: the server
 * may write into its places until a later request on the same model has been answered or
 * the region is closed.
 *
 * Each waits for the server.  One region is used by any number of requests at once; open,
 * renew and close it when none of them is under way.  Close it before its client. */

/* Memory of this process that the server sees too: zeroed, of whole pages.  All of it is
 * allocated here and now, in /dev/shm, and none is given back before the close: ask for what
 * is needed.  Fails UNIMPLEMENTED or PERMISSION_DENIED when the server does not allow it,
 * NOT_FOUND when it is on another host, RESOURCE_EXHAUSTED when memory is short here (/dev/shm
 * full) or the server's limits are reached. */
enum voxel_code voxel_region_open(struct voxel_client *client, size_t bytes,
                                  struct voxel_region **region,
                                  struct voxel_error *error);

/* Memory of a GPU that the caller has allocated and made a handle of, with
 * cuIpcGetMemHandle or hipIpcGetMemHandle; it stays the caller's. */
#define VOXEL_HANDLE_BYTES 64
struct voxel_device_memory {
    uint8_t handle[VOXEL_HANDLE_BYTES];
    int64_t device; /* as the driver counts */
    size_t bytes;   /* from the begin of the allocation */
};
enum voxel_code voxel_region_open_device(struct voxel_client *client,
                                         const struct voxel_device_memory *memory,
                                         struct voxel_region **region,
                                         struct voxel_error *error);

/* Registers it again with the connection there is now.  Address and content stay. */
enum voxel_code voxel_region_renew(struct voxel_region *region,
                                   struct voxel_error *error);
void *voxel_region_memory(const struct voxel_region *region); /* NULL on a device */
size_t voxel_region_bytes(const struct voxel_region *region);
/* NULL is allowed.  Also without a server. */
void voxel_region_close(struct voxel_region *region);

/* Health and information; all wait for the answer. */

enum voxel_code voxel_server_live(struct voxel_client *client, bool *live,
                                  struct voxel_error *error);
enum voxel_code voxel_server_ready(struct voxel_client *client, bool *ready,
                                   struct voxel_error *error);

/* Which model; version 0 = any. */
struct voxel_model_name {
    const char *name;
    int64_t version;
};
enum voxel_code voxel_model_ready(struct voxel_client *client,
                                  const struct voxel_model_name *model, bool *ready,
                                  struct voxel_error *error);

struct voxel_server_info {
    const char *name;
    const char *version;
    const char *const *extensions;
    int32_t extensions_count;
};
enum voxel_code voxel_server_info_get(struct voxel_client *client,
                                      struct voxel_server_info **info,
                                      struct voxel_error *error);

/* A model's input or output; a dimension of -1 is any size. */
struct voxel_tensor_info {
    const char *name;
    enum voxel_type type;
    const char *type_name; /* as the server spelt it */
    int32_t rank;
    int64_t shape[VOXEL_RANK_MAX];
};
struct voxel_model_info {
    const char *name;
    const char *platform;
    const char *const *versions;
    int32_t versions_count;
    const struct voxel_tensor_info *inputs;
    int32_t inputs_count;
    const struct voxel_tensor_info *outputs;
    int32_t outputs_count;
};
enum voxel_code voxel_model_info_get(struct voxel_client *client,
                                     const struct voxel_model_name *model,
                                     struct voxel_model_info **info,
                                     struct voxel_error *error);

/* How often, and for how long in all. */
struct voxel_duration {
    uint64_t count;
    uint64_t ns;
};
struct voxel_model_statistics {
    const char *name;
    const char *version;
    uint64_t last_inference_ms; /* since the epoch; 0 = never */
    uint64_t inference_count;
    uint64_t execution_count;
    struct voxel_duration success, fail, queue;
    struct voxel_duration compute_input, compute_infer, compute_output;
    struct voxel_duration cache_hit, cache_miss;
};
struct voxel_statistics {
    const struct voxel_model_statistics *models;
    int32_t models_count;
};
/* An empty name means every model. */
enum voxel_code voxel_statistics_get(struct voxel_client *client,
                                     const struct voxel_model_name *model,
                                     struct voxel_statistics **statistics,
                                     struct voxel_error *error);

struct voxel_model_index {
    const char *name;
    const char *version;
    const char *state; /* "READY", "UNAVAILABLE", ...; "" when the server does not say */
    const char *reason;
};
struct voxel_models {
    const struct voxel_model_index *models;
    int32_t models_count;
};
/* From RepositoryIndex; a server without it (UNIMPLEMENTED) is asked for the statistics
 * of every model instead, which lists those that are loaded: state is then "READY". */
enum voxel_code voxel_models_get(struct voxel_client *client,
                                 struct voxel_models **models, struct voxel_error *error);

/* Releases what any of the _get functions gave.  NULL is allowed. */
void voxel_info_free(void *info);

#ifdef __cplusplus
}
#endif
#endif
