/* infer_wire - ModelInferRequest out, ModelInferResponse in, without gRPC.
 *
 * A request becomes pieces: bytes of ours (names, shapes, the prefix of each raw tensor
 * and tensors too small to be worth a piece) and the caller's tensors, borrowed.  An
 * answer comes as spans: all but the raw tensors is gathered (it is small) and parsed,
 * then each raw tensor is copied once to where it stays.
 *
 *   struct voxel_message message;
 *   if (voxel_message_pack(request, &message, error)) ...
 *   ... send message.pieces in order; then voxel_message_fini(&message)
 *   if (voxel_answer_parse(&spans, &wanted, &answer, error)) ...
 *
 * Owner    a message owns its own bytes and borrows the tensors; an answer belongs to the
 *          caller.
 * Thread   any.
 * Limits   VOXEL_INPUTS_MAX, VOXEL_OUTPUTS_MAX, VOXEL_MESSAGE_BYTES_MAX,
 *          VOXEL_REST_BYTES_MAX.
 * Fails    pack: INVALID_ARGUMENT for a request that cannot be right; parse: INTERNAL for
 *          bytes that are no answer, or one to another request, UNIMPLEMENTED for typed contents, OUT_OF_RANGE for a
 *          small place.
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
/* Parameters of one answer: voxeld sends 7 at most. */
#define VOXEL_PARAMETERS_MAX 256
/* Where gRPC's own length ends. */
#define VOXEL_MESSAGE_BYTES_MAX 2147483647u
/* An answer without its raw tensors: names, shapes, parameters. */
#define VOXEL_REST_BYTES_MAX (4u << 20)
/* Below this a tensor is copied beside the head: one more slice costs more than the copy.
 */
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

/* What a request says about its answer; all zero: anything may come. */
struct voxel_wanted {
    const struct voxel_place *places;
    int32_t places_count;
    const char *const *outputs;
    int32_t outputs_count;
    const char *model;
    const char *id;
    int64_t version;
    bool voxels; /* every input was [rows, C]: so is every output, and there is one */
    int64_t rows;
};
/* Nothing is written to places before the answer's head is known to be what was wanted. */
enum voxel_code voxel_answer_parse(const struct voxel_spans *spans,
                                   const struct voxel_wanted *wanted,
                                   struct voxel_answer **answer,
                                   struct voxel_error *error);
/* An answer without its data against what was wanted: INTERNAL says where they part. */
enum voxel_code voxel_answer_check(const struct voxel_answer *answer,
                                   const struct voxel_wanted *wanted,
                                   struct voxel_error *error);
/* The version as text, "" for 0: as requests have it. */
void voxel_version_text(int64_t version, char text[24]);

#endif
