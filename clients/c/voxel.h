/* voxel - talks to voxeld, or to any Open Inference Protocol v2 server, over gRPC.
 *
 * A client is one connection.  Requests borrow the caller's tensors: their bytes go to
 * the socket from where they are, without a copy.  The library copies the outputs of an
 * answer once, into its own memory or into memory that the caller names.  If the server
 * is on the same host, tensors may lie in shared memory: their bytes are then not sent.
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
 *   voxel_answer_free(answer);
 *   voxel_client_close(client);
 *
 * Shapes   coords INT32 [N,4]: the sample (0..511), then three axes (-131072..131071);
 *          each voxel once.  Or [N,3]: three axes, all of sample 0.  The axes are in the
 *          order that the network was trained with: pass spconv's [b,z,y,x] unchanged.
 *          feats FP32, FP16 or BF16 [N,C].  Row i of an output belongs to row i of
 *          coords.  All tensors are little-endian, row-major, without padding.
 * Units    times end in _us (microseconds) or _ns, sizes in _bytes.
 * Owner    the caller owns every client, answer, region and info that it gets, and closes
 *          or frees it; what these point to belongs to them.  Unless its comment says
 *          otherwise, a function takes no NULL but as `error`, and borrows until it returns.
 * Thread   every function may be called from any thread, and many calls may be under way
 *          at once, except: voxel_client_close is called once, when no other call is
 *          running.  Callbacks are described at voxel_infer_async.
 * Limits   a message is at most 2^31-1 bytes; a tensor has at most VOXEL_RANK_MAX
 *          dimensions; a request has at most 16 inputs, 64 outputs and 64 places.
 * Fails    every function that can fail returns a gRPC status code (0 is success) and, if
 *          `error` is not NULL, stores the code and a sentence there: the server's own
 *          sentence if the server refused.  A result that is returned through a pointer
 *          is NULL (a bool: false) after a failure.  Every function that calls the server
 *          can fail with UNAVAILABLE (no connection, or the server ended the call without
 *          an answer), DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED (no memory), INTERNAL (a
 *          damaged answer) and with each code that the server sends; "Fails" at a
 *          function names the other codes.  An answer that contradicts its request
 *          (another model, version or id, a missing output, another number of rows than
 *          was sent, another number of bytes than its shape needs) is INTERNAL.
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

/* Errors: the status codes of gRPC, with its numbers. */
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

/* "INVALID_ARGUMENT"; "UNKNOWN" for a number that gRPC does not define.  Static. */
const char *voxel_code_name(enum voxel_code code);

#define VOXEL_ERROR_BYTES 1024
struct voxel_error {
    enum voxel_code code;
    char text[VOXEL_ERROR_BYTES]; /* a sentence, NUL-terminated; a longer one is cut */
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

/* "FP32", as on the wire; "NONE" for a number that is no type.  Static. */
const char *voxel_type_name(enum voxel_type type);
/* The type of that name; VOXEL_NONE if there is none.  `name` is not NULL. */
enum voxel_type voxel_type_of(const char *name);
/* Bytes of one element; 0 for VOXEL_NONE and VOXEL_BYTES. */
size_t voxel_type_bytes(enum voxel_type type);

struct voxel_region; /* shared memory, below */

#define VOXEL_RANK_MAX 8
struct voxel_tensor {
    const char *name;
    enum voxel_type type;
    int32_t rank;
    int64_t shape[VOXEL_RANK_MAX];
    const void *data; /* may be NULL when bytes is 0 */
    size_t bytes;     /* product of shape times the element's size */
    /* If not NULL, the tensor lies in this region, region_offset bytes from its start;
     * `data` of an input is then ignored. */
    const struct voxel_region *region;
    size_t region_offset;
    /* Of an output on another set of voxels than the request's: the output with its
     * coordinates (INT32 [rows, 4], sample x y z, ascending), NULL for those themselves,
     * and its stride, "2x2x2" or "1/2x1/2x1/2".  Both are NULL for any other tensor. */
    const char *coords, *stride;
};

/* A [rows, columns] tensor over `data`.  It borrows `name` and `data`; there is nothing
 * to release.  A negative or too large size gives a tensor of 0 bytes, which the request
 * that uses it refuses. */
struct voxel_tensor voxel_tensor_make(const char *name, enum voxel_type type,
                                      int64_t rows, int64_t columns, const void *data);

struct voxel_client; /* the connection */

/* TLS: names of files in PEM, which are read when the client opens. */
struct voxel_tls {
    const char *ca_file;     /* the authorities that are trusted; NULL: the system's */
    const char *cert_file;   /* the client's own certificate, if the server wants one, */
    const char *key_file;    /* and its private key */
    const char *server_name; /* in the server's certificate; NULL: the address's host */
};

struct voxel_options {
    int32_t threads;     /* 0: the caller polls; 1..16: the library runs the callbacks */
    int64_t deadline_us; /* for calls that set none; 0 = none; 1: no answer is so soon */
    bool wait_for_ready; /* calls wait, up to their deadline, for a server that is down */
    bool no_geometry_header;     /* inferences do not send x-voxel-geometry, see below */
    const struct voxel_tls *tls; /* NULL: plain text */
    const char *token; /* sent with each call: authorization: Bearer TOKEN; NULL = none */
};
#define VOXEL_THREADS_MAX 16

/* Makes a client for the server at `address`: "host:port", "[v6]:port" or "unix:path".
 * `options` may be NULL, which means all zero.  The library copies both.
 *
 * Opening does not connect; the first call does.  A call that finds no server fails at
 * once with UNAVAILABLE or, with wait_for_ready, waits for the server.  After such a call
 * a thread of the library goes on connecting and ends when there is a connection: a
 * server that comes up is found within about a second, also by a program that only calls
 * and sleeps.  After a connection is lost, the next call connects again.
 *
 * A call that the server ended without an answer is UNAVAILABLE.  It is CANCELLED only if
 * this client cancelled it (voxel_client_close), or the server said so in a sentence.
 * Fails INVALID_ARGUMENT (address, options, TLS), RESOURCE_EXHAUSTED (memory, threads). */
enum voxel_code voxel_client_open(const char *address,
                                  const struct voxel_options *options,
                                  struct voxel_client **client,
                                  struct voxel_error *error);

/* Cancels the asynchronous calls in flight, waits until their callbacks have run (with
 * CANCELLED; on this thread if options.threads is 0), then releases everything.  Answers
 * stay valid.  NULL is allowed.  Not from a callback, nor while a region is open. */
void voxel_client_close(struct voxel_client *client);

/* Inference. */
/* Where an output goes.  The library allocates memory for an output without a place. */
struct voxel_place {
    const char *output; /* its name */
    void *memory; /* borrowed until the call ends; then the output's data points here */
    size_t bytes; /* of the place; a larger output: OUT_OF_RANGE (region: INTERNAL) */
    /* If not NULL, the server writes the output into this region, region_offset bytes
     * from its start, and refuses one that is larger than `bytes`; `memory` is ignored.
     * The output then counts as named in `outputs`: if `outputs` is empty, the answer has
     * only the outputs with a place in a region. */
    const struct voxel_region *region;
    size_t region_offset;
};

struct voxel_request {
    const char *model;
    int64_t version; /* 0 = the highest that is ready */
    const char *id;  /* the answer must repeat it, the server's log has it; NULL = none */
    const char *traceparent; /* W3C Trace Context, sent as it is; NULL = none */
    /* How long their data is borrowed: see voxel_infer and voxel_infer_async. */
    const struct voxel_tensor *inputs;
    int32_t inputs_count;
    const char *const *outputs; /* names of the outputs wanted; none = all of the model */
    int32_t outputs_count;
    const struct voxel_place *places;
    int32_t places_count;
    uint64_t priority;         /* 0 = the server's default, 1 = highest */
    int64_t timeout_us;        /* longest wait in the server's queue; 0 = no limit */
    int64_t deadline_us;       /* until the answer has come; 0 = the client's default */
    bool timing, layers;       /* the answer has times; and what computed each layer */
    const char *spatial_shape; /* "1440x1440x40", in place of the model's; NULL = that */

    /* NULL: the request uses no names of coords.
     * "": the server names these coords.  The answer has the name as its text parameter
     *     coords_ref, unless the server did not keep them.
     * A name: stands for the coords that it was given for; the request then leaves the
     *     input coords out.  FAILED_PRECONDITION says that the server has forgotten them
     *     and that they must be sent.
     * voxel_infer_geometry does this for the caller. */
    const char *coords_ref;
    /* The coords that the name stands for, not sent; NULL = the caller has not got them.
     * Of these, or of coords that are sent, the library makes the header x-voxel-geometry,
     * by which a load balancer keeps a geometry on one server. */
    const struct voxel_tensor *named_coords;
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

/* All that an answer points to belongs to it, except outputs in the caller's places. */
struct voxel_answer {
    const char *model, *version, *id;
    const struct voxel_tensor *outputs; /* 64-byte aligned in the library's memory */
    int32_t outputs_count;
    const struct voxel_parameter *parameters;
    int32_t parameters_count;
    size_t sent_bytes; /* of the messages, without gRPC's framing */
    size_t received_bytes;
    int64_t round_trip_ns; /* from the call's start to its end, before decoding */
};

/* Sends a request and waits for its answer.  *answer is the caller's, to be freed with
 * voxel_answer_free.  Everything in `request` is borrowed until the function returns.
 * Fails INVALID_ARGUMENT (a request that cannot be sent, or that the server refuses),
 * NOT_FOUND (model, version, region), OUT_OF_RANGE (a place is too small; INTERNAL in a
 * region), UNIMPLEMENTED (typed contents came), FAILED_PRECONDITION (coords_ref). */
enum voxel_code voxel_infer(struct voxel_client *client,
                            const struct voxel_request *request,
                            struct voxel_answer **answer, struct voxel_error *error);

/* A 16-byte hash of coordinates; all zero = not known. */
struct voxel_digest {
    uint64_t words[2];
};

/* The name of a geometry that many requests use; all zero before the first of them. */
#define VOXEL_REF_BYTES_MAX 64
struct voxel_geometry {
    char name[VOXEL_REF_BYTES_MAX]; /* "" = the server has not named it yet */
    struct voxel_digest digest;     /* of the coords that the name stands for */
    bool resent; /* out: there was a name, but the coords had to be sent again */
};

/* As voxel_infer, but sends the coordinates (the INT32 input) only if it must: the first
 * time, when the server has forgotten them, and when they differ from those that the name
 * in `geometry` stands for, also in their order.  `geometry` then gets their name.  To
 * see a difference the function reads all coordinates each time (some ms for a million).
 * It does not use a name without its digest, so copy the struct whole.  A request without
 * an INT32 input uses the name as it is.  request->coords_ref is ignored.
 *
 * The caller owns `geometry`; one thread uses it at a time.  Fails as voxel_infer, and
 * INVALID_ARGUMENT for coordinates in a device's memory, which voxeld does not name. */
enum voxel_code voxel_infer_geometry(struct voxel_client *client,
                                     const struct voxel_request *request,
                                     struct voxel_geometry *geometry,
                                     struct voxel_answer **answer,
                                     struct voxel_error *error);

/* Receives the result of an asynchronous call.  The callback owns `answer`, which is NULL
 * if error->code is not VOXEL_OK, and frees it.  `error` is valid only inside it. */
typedef void (*voxel_on_answer)(void *context, struct voxel_answer *answer,
                                const struct voxel_error *error);

/* Sends a request and returns.  `on_answer` runs exactly once if this returned VOXEL_OK,
 * and never otherwise: on a thread of the library (options.threads > 0), else inside
 * voxel_client_poll or voxel_client_close.  No lock is held then, so it may submit the
 * next request.  It must not block: other callbacks wait for it.
 *
 * The struct request, its texts and its lists are borrowed for this function only; the
 * tensors' data and the places' memory are borrowed until the callback.  Any number of
 * calls may be in flight.  Fails INVALID_ARGUMENT (a request that cannot be sent),
 * RESOURCE_EXHAUSTED (memory), CANCELLED (the client is closing); the callback gets all
 * other errors of voxel_infer, and CANCELLED from voxel_client_close. */
enum voxel_code voxel_infer_async(struct voxel_client *client,
                                  const struct voxel_request *request,
                                  voxel_on_answer on_answer, void *context,
                                  struct voxel_error *error);

/* Waits until a call in flight ends, at most `timeout_us` (0 = do not wait, negative = no
 * limit), and runs on this thread the callbacks of all calls that have ended.  Returns
 * how many ran: 0 at once if nothing is in flight, or if the client has threads. */
int32_t voxel_client_poll(struct voxel_client *client, int64_t timeout_us);

/* How many asynchronous calls are submitted and have not been called back. */
int64_t voxel_client_in_flight(const struct voxel_client *client);

/* The answer's output or parameter of that name, which belongs to it; NULL if none. */
const struct voxel_tensor *voxel_answer_find(const struct voxel_answer *answer,
                                             const char *output);
const struct voxel_parameter *
voxel_answer_find_parameter(const struct voxel_answer *answer, const char *name);
/* NULL is allowed.  Any thread, also after voxel_client_close. */
void voxel_answer_free(struct voxel_answer *answer);

/* An output on voxels of its own, with their coordinates; all of it is the answer's.
 * False if the answer lacks either, or if its rows are those of the request's coords. */
struct voxel_sparse {
    const struct voxel_tensor *coords, *features; /* INT32 [rows, 4]; [rows, channels] */
    double stride[3];                             /* along x, y, z; 0.5 for 1/2 */
};
bool voxel_answer_sparse(const struct voxel_answer *answer, const char *output,
                         struct voxel_sparse *sparse);

/* Shared memory, with a server on the same host that allows it.
 *
 *   struct voxel_region *region;
 *   if (voxel_region_open(client, 1 << 20, &region, &error)) return fail(&error);
 *   int32_t *coords = voxel_region_memory(region); ...
 *   inputs[0] = voxel_tensor_make("coords", VOXEL_INT32, n, 4, coords);
 *   inputs[0].region = region;
 *   struct voxel_place place = {.output = "normals", .bytes = n * 12, .region = region,
 *                               .region_offset = 1 << 19};
 *   ... voxel_infer ...
 *   voxel_region_close(region);
 *
 * A region belongs to the connection that registered it: no other client can use it, and
 * it ends with the connection.  Requests that name it then fail NOT_FOUND, and
 * voxel_region_renew registers it on the new connection.  Its memory has a name in the
 * file system only while it is being registered: a program that dies leaves nothing.
 *
 * The server may still run a call that this side gave up (DEADLINE_EXCEEDED, CANCELLED)
 * and write into its places, until it has answered a later request on the model or the
 * region is closed.
 *
 * Any number of requests may use one region at once.  Open, renew and close, which wait
 * for the server, only while none is under way.  Close it before its client. */

/* Makes a region in memory of this process that the server sees too: zeroed, at least
 * `bytes` (1 or more), page-aligned.  All of it is allocated in /dev/shm now and stays so
 * until the close: ask for no more than you need.  *region is the caller's, to be closed;
 * it borrows the client.
 * Fails INVALID_ARGUMENT (bytes); UNIMPLEMENTED or PERMISSION_DENIED if the server does
 * not allow it (never from another host); NOT_FOUND if the server does not see this
 * process's /dev/shm; RESOURCE_EXHAUSTED if /dev/shm or a limit of the server is full. */
enum voxel_code voxel_region_open(struct voxel_client *client, size_t bytes,
                                  struct voxel_region **region,
                                  struct voxel_error *error);

/* Memory that the caller allocated on a GPU; cuIpcGetMemHandle, hipIpcGetMemHandle. */
#define VOXEL_HANDLE_BYTES 64
struct voxel_device_memory {
    uint8_t handle[VOXEL_HANDLE_BYTES];
    int64_t device; /* the GPU's number, as the driver counts: 0, 1, ... */
    size_t bytes;   /* from the start of the allocation */
};
/* Makes a region of it.  The caller keeps the memory and frees it after the close, and
 * waits for its own work on the memory before it sends a request.  *region is the
 * caller's, to be closed; it borrows the client.
 * Fails INVALID_ARGUMENT (bytes 0, device negative); otherwise as voxel_region_open. */
enum voxel_code voxel_region_open_device(struct voxel_client *client,
                                         const struct voxel_device_memory *memory,
                                         struct voxel_region **region,
                                         struct voxel_error *error);

/* Registers the region again, on the current connection.  Address and content stay, also
 * after a failure; it can then be called again.  Fails as voxel_region_open. */
enum voxel_code voxel_region_renew(struct voxel_region *region,
                                   struct voxel_error *error);
/* Where the region begins in this process, valid until the close; NULL on a device. */
void *voxel_region_memory(const struct voxel_region *region);
/* The size that it was opened with. */
size_t voxel_region_bytes(const struct voxel_region *region);
/* Takes the region back from the server, waiting at most 2 s for it, and releases it,
 * also if no server answers.  NULL is allowed. */
void voxel_region_close(struct voxel_region *region);

/* Health and information.  Each function waits for the answer.  Each _get returns an info
 * that the caller frees with voxel_info_free; -1 as a dimension is any size. */

/* *live: the server answers.  *ready: the server serves requests. */
enum voxel_code voxel_server_live(struct voxel_client *client, bool *live,
                                  struct voxel_error *error);
enum voxel_code voxel_server_ready(struct voxel_client *client, bool *ready,
                                   struct voxel_error *error);

/* Names a model.  A function that takes it fails INVALID_ARGUMENT for a name of about
 * 1000 bytes or more, NOT_FOUND if the server has no such model or version. */
struct voxel_model_name {
    const char *name;
    int64_t version; /* 0 = any */
};
/* *ready: the model serves requests; of voxeld and Triton, false also if there is none. */
enum voxel_code voxel_model_ready(struct voxel_client *client,
                                  const struct voxel_model_name *model, bool *ready,
                                  struct voxel_error *error);

struct voxel_server_info {
    const char *name, *version;
    const char *const *extensions;
    int32_t extensions_count;
};
/* The server's name, version and extensions of the protocol. */
enum voxel_code voxel_server_info_get(struct voxel_client *client,
                                      struct voxel_server_info **info,
                                      struct voxel_error *error);

/* A model's input or output. */
struct voxel_tensor_info {
    const char *name;
    enum voxel_type type;
    const char *type_name; /* as the server spells it; type is NONE if it is not known */
    int32_t rank;
    int64_t shape[VOXEL_RANK_MAX];
};
struct voxel_model_info {
    const char *name, *platform;
    const char *const *versions;
    int32_t versions_count;
    const struct voxel_tensor_info *inputs;
    int32_t inputs_count;
    const struct voxel_tensor_info *outputs;
    int32_t outputs_count;
};
/* A model's versions, inputs and outputs. */
enum voxel_code voxel_model_info_get(struct voxel_client *client,
                                     const struct voxel_model_name *model,
                                     struct voxel_model_info **info,
                                     struct voxel_error *error);

/* How often a stage ran, and its total time. */
struct voxel_duration {
    uint64_t count, ns;
};
struct voxel_model_statistics {
    const char *name, *version;
    uint64_t last_inference_ms; /* since the epoch; 0 = never */
    uint64_t inference_count, execution_count;
    struct voxel_duration success, fail, queue;
    struct voxel_duration compute_input, compute_infer, compute_output;
    struct voxel_duration cache_hit, cache_miss;
};
struct voxel_statistics {
    const struct voxel_model_statistics *models;
    int32_t models_count;
};
/* Counters and times of each version of a model; an empty name means every model. */
enum voxel_code voxel_statistics_get(struct voxel_client *client,
                                     const struct voxel_model_name *model,
                                     struct voxel_statistics **statistics,
                                     struct voxel_error *error);

struct voxel_model_index {
    const char *name, *version;
    const char *state; /* "READY", "UNAVAILABLE", ...; "" if the server does not say */
    const char *reason;
};
struct voxel_models {
    const struct voxel_model_index *models;
    int32_t models_count;
};
/* The server's models, from RepositoryIndex.  From a server without that method
 * (UNIMPLEMENTED) the function gets the statistics of every model instead; these list the
 * loaded models, so that every state is "READY". */
enum voxel_code voxel_models_get(struct voxel_client *client,
                                 struct voxel_models **models, struct voxel_error *error);

/* Frees what a _get function returned, with all that it points to.  NULL is allowed. */
void voxel_info_free(void *info);

#ifdef __cplusplus
}
#endif
#endif
