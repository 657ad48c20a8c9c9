/* request - one inference request and its reply as plain C structs.
 *
 * codec.h makes a request from wire bytes, and wire bytes from a reply.  There is no
 * pointer into protobuf and no allocation: a request is a value inside a call.
 *
 * Owner    the call that holds it; slots as in codec.h.
 * Thread   one at a time, handed over with its call.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_PROTO_REQUEST_H
#define VX_PROTO_REQUEST_H

#include "engine/base/status.h"
#include "engine/base/text/coords_ref.h"
#include "proto/limits.h"

/* The wire's datatypes, by their names in the Open Inference Protocol. */
enum vx_wire_type {
    VX_WIRE_NONE, /* a name that the protocol does not have */
    VX_WIRE_BOOL,
    VX_WIRE_UINT8,
    VX_WIRE_UINT16,
    VX_WIRE_UINT32,
    VX_WIRE_UINT64,
    VX_WIRE_INT8,
    VX_WIRE_INT16,
    VX_WIRE_INT32,
    VX_WIRE_INT64,
    VX_WIRE_FP16,
    VX_WIRE_FP32,
    VX_WIRE_FP64,
    VX_WIRE_BF16,
    VX_WIRE_BYTES,
};
size_t vx_wire_type_bytes(enum vx_wire_type type);     /* 0 for NONE and BYTES */
const char *vx_wire_type_name(enum vx_wire_type type); /* "INT32" */
enum vx_wire_type vx_wire_type_of(const char *name);

/* Where a tensor's bytes lie. */
enum vx_place_kind {
    VX_PLACE_NONE,   /* nowhere: the tensor is not there, or not wanted */
    VX_PLACE_ARENA,  /* in a slot of the arena; an empty tensor needs none */
    VX_PLACE_SYSTEM, /* in a region: system shared memory that a client registered */
    VX_PLACE_DEVICE, /* in a region: memory of a device that a client registered */
};
struct vx_place {
    u64 offset; /* from the start of the arena or of the region */
    u64 bytes;
    i32 kind;   /* enum vx_place_kind */
    i32 region; /* SYSTEM, DEVICE: 1 .. VX_REGIONS_MAX; else 0 */
    i32 worker; /* DEVICE: the only one that can use it */
};

static inline bool vx_place_in_region(const struct vx_place *place)
{
    return place->kind == VX_PLACE_SYSTEM || place->kind == VX_PLACE_DEVICE;
}

/* What a request says of a tensor whose bytes are not in the message. */
struct vx_request_region {
    char name[VX_WIRE_NAME_BYTES]; /* of a registered region; "" = in the message */
    u64 offset, bytes;             /* of the tensor, in the region */
};

struct vx_request_tensor {
    char name[VX_WIRE_NAME_BYTES];
    enum vx_wire_type type;
    i32 rank;
    i64 shape[VX_RANK_MAX]; /* none negative */
    i64 elements;           /* product of shape, checked */
    /* elements * size of type bytes, little-endian, row-major.  The codec sets it for a
     * tensor in the message. */
    struct vx_place place;
    struct vx_request_region region; /* with a name: the tensor is there */
};

struct vx_request {
    char model[VX_WIRE_NAME_BYTES];
    i64 version; /* 0 = not given: the highest that is ready */
    char id[VX_REQUEST_ID_BYTES];
    i32 inputs_count;
    struct vx_request_tensor inputs[VX_INPUTS_MAX];
    i32 outputs_count; /* 0 = all outputs of the model */
    char outputs[VX_REQUEST_OUTPUTS_MAX][VX_WIRE_NAME_BYTES];
    struct vx_request_region outputs_region[VX_REQUEST_OUTPUTS_MAX]; /* where each goes */
    u64 priority;      /* 0 = default, 1 = highest */
    i64 timeout_us;    /* 0 = none */
    i32 shape[3];      /* parameter `spatial_shape`; zeros = not given */
    bool timing;       /* parameter `timing`: the answer has times and cost */
    bool layers;       /* its value "layers": also what each layer took */
    bool coords_named; /* parameter `coords_ref` is there: the answer has it too */
    /* Its value if that is not "": the geometry to use, without an input coords. */
    struct vx_coords_ref coords_ref;
    struct vx_coords_ref sent_ref; /* the coords_ref of the coords in the message */
};

struct vx_reply_tensor {
    char name[VX_WIRE_NAME_BYTES];
    enum vx_wire_type type;
    i32 rank;
    i64 shape[VX_RANK_MAX];
    u64 bytes; /* of its raw entry, which exists even when it is empty */
    /* Parameters of the tensor, borrowed; NULL = it has none.  Of rows that are not the
     * request's: the output with their coordinates, and the stride of their set. */
    const char *coords, *stride;
};

/* Parameters of an answer: `coords_ref`, and what `timing` asks for.
 *   queue_ns      waiting for a device
 *   convert_ns    copying and converting inputs, as Triton's compute_input
 *   geometry_ns   building maps, or looking them up
 *   compute_ns    layers
 *   output_ns     converting and copying outputs
 *   total_ns      from the request's headers to its answer
 *   geometry_hit  bool: every map came from the cache
 *   pairs         pairs of all its maps: the request's cost
 *   set_voxels    voxels of all its sets: N, without others
 *   batch_size    requests in its batch
 *   batch_voxels  voxels in its batch
 *   device        text: the device and its worker
 *   layers        text: which algorithm each layer took, if `timing` is "layers"
 * Requests of one round all have its convert_ns, geometry_ns, compute_ns, output_ns. */
#define VX_REPLY_PARAMETERS_MAX 16
struct vx_reply_parameter {
    char name[32];
    enum { VX_PARAMETER_I64, VX_PARAMETER_BOOL, VX_PARAMETER_TEXT } kind;
    i64 number;
    char text[VX_WIRE_NAME_BYTES];
    const char *long_text; /* borrowed, of less than VX_TAKEN_BYTES: in place of `text` */
};

struct vx_reply {
    char model[VX_WIRE_NAME_BYTES];
    i64 version;
    char id[VX_REQUEST_ID_BYTES];
    i32 outputs_count;
    struct vx_reply_tensor outputs[VX_REQUEST_OUTPUTS_MAX];
    i32 parameters_count;
    struct vx_reply_parameter parameters[VX_REPLY_PARAMETERS_MAX];
};

#endif
