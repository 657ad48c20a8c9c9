/* infer_wire - writes a ModelInferRequest and reads a ModelInferResponse, without gRPC.
 *
 * A request becomes a list of pieces: the library's own bytes (names, shapes, the prefix
 * of each raw tensor, and tensors too small for a piece of their own) and the caller's
 * tensors, borrowed.  An answer comes as spans: all but the raw tensors (it is small) is
 * copied together and parsed, then each raw tensor is copied once to where it stays.
 *
 *   struct voxel_message message;
 *   if (voxel_message_pack(request, &message, error)) ...
 *   ...                                  send message.pieces in order
 *   voxel_message_fini(&message);
 *   if (voxel_answer_parse(&spans, &wanted, &answer, error)) ...
 *
 * Owner    a message owns its own bytes and borrows the tensors; an answer belongs to the
 *          caller.
 * Thread   any.
 * Limits   VOXEL_INPUTS_MAX, VOXEL_OUTPUTS_MAX, VOXEL_MESSAGE_BYTES_MAX,
 *          VOXEL_REST_BYTES_MAX.
 * Fails    pack: INVALID_ARGUMENT for a request that cannot be right, RESOURCE_EXHAUSTED
 *          without memory.  parse: INTERNAL for bytes that are no answer or an answer to
 *          another request, UNIMPLEMENTED for typed contents, OUT_OF_RANGE for a place
 *          that is too small, RESOURCE_EXHAUSTED without memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_C_INFER_WIRE_H
#define VOXEL_CLIENTS_C_INFER_WIRE_H

#include "clients/c/voxel.h"
#include "clients/c/wire.h"

/* Inputs of one request and outputs of one answer: the server allows 8 of each. */
#define VOXEL_INPUTS_MAX  16
#define VOXEL_OUTPUTS_MAX 64
/* Parameters of one answer: voxeld sends 14 at most (timing, layers and coords_ref). */
#define VOXEL_PARAMETERS_MAX 256
/* gRPC's own limit. */
#define VOXEL_MESSAGE_BYTES_MAX 2147483647u
/* Bytes of an answer without its raw tensors: names, shapes, parameters. */
#define VOXEL_REST_BYTES_MAX (4u << 20)
/* A tensor up to this size is copied behind the head: one more slice costs more. */
#define VOXEL_COPY_BYTES_MAX 4096

struct voxel_message {
    uint8_t *own;
    struct voxel_span pieces[2 * VOXEL_INPUTS_MAX + 1];
    bool borrowed[2 * VOXEL_INPUTS_MAX + 1]; /* false: inside `own` */
    size_t pieces_count;
    size_t bytes;
};

enum voxel_code voxel_message_pack(const struct voxel_request *request,
                                   struct voxel_message *message,
                                   struct voxel_error *error);
void voxel_message_fini(struct voxel_message *message);

/* What a request requires of its answer; if all zero, any answer is accepted.  It borrows
 * all that it points to. */
struct voxel_wanted {
    const struct voxel_place *places;
    int32_t places_count;
    const char *const *outputs;
    int32_t outputs_count;
    const char *model;
    const char *id;
    int64_t version;
    bool voxels; /* every input was [rows, C]: there must be outputs, with as many rows */
    int64_t rows;
};
/* Reads an answer.  Checks all but the raw tensors before it writes to any place. */
enum voxel_code voxel_answer_parse(const struct voxel_spans *spans,
                                   const struct voxel_wanted *wanted,
                                   struct voxel_answer **answer,
                                   struct voxel_error *error);
/* Compares an answer, without its data, with what was wanted; INTERNAL names the first
 * difference. */
enum voxel_code voxel_answer_check(const struct voxel_answer *answer,
                                   const struct voxel_wanted *wanted,
                                   struct voxel_error *error);
/* The version as a request spells it: decimal digits, "" for 0. */
void voxel_version_text(int64_t version, char text[24]);
/* Reads "2x2x2", "1/2x1/2x1/2" or "0x0x0"; false for any other text. */
bool voxel_stride_read(const char *text, double stride[3]);

#endif
