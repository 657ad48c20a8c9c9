/* limits - every wire maximum, with its reason.  Internal limits are in
 * engine/base/limits.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_PROTO_LIMITS_H
#define VX_PROTO_LIMITS_H

/* The whole message: what stock clients set as their own limit, and where gRPC's int
 * ends. */
#define VX_MESSAGE_BYTES_MAX 2147483647

/* All of a ModelInferRequest that is not raw tensor bytes: names, shapes, parameters, and
 * typed contents (what grpcurl users send; 4 MiB of it is a million floats). */
#define VX_INFER_REST_BYTES_MAX (4 << 20)

/* Room for what protobuf-c makes of the rest: typed contents, of which 4 MiB is the most, grow to at
 * most 8 times their bytes.  A message of nothing but tiny parts grows more, and is refused. */
#define VX_INFER_SCRATCH_BYTES (40 << 20)

/* Any other question: the largest are names and parameters.  It lies here until it is answered, and
 * there may be as many as calls. */
#define VX_QUESTION_BYTES_MAX (16 << 10)

/* Its answer: the longest is the statistics of all models.  Stock clients take 4 MiB. */
#define VX_ANSWER_BYTES_MAX (4 << 20)

/* Inputs of one request: coords and feats, and room for the one that is unknown to be
 * named. */
#define VX_INPUTS_MAX 8

/* Outputs a request may name: what a model may have (engine's limit, asserted equal
 * there). */
#define VX_REQUEST_OUTPUTS_MAX 8

/* Entries of a parameter map: the protocol knows 8 keys, stock clients send at most that;
 * small, since each key is compared with the ones behind it. */
#define VX_PARAMETERS_MAX 64

/* Dimensions of a shape: ours have 2; stock clients' tests send up to 4. */
#define VX_RANK_MAX 8

/* Request id, echoed; longer than any UUID or trace id. */
#define VX_REQUEST_ID_BYTES 256

/* Names on the wire, with NUL. */
#define VX_WIRE_NAME_BYTES 128

/* Shared memory regions of all clients: a few clients at a time, each with one per input
 * and output of its data. */
#define VX_REGIONS_MAX 256

#endif
