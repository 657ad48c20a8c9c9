/* limits - every maximum of the wire protocol, with its reason.
 *
 * Internal limits are in engine/base/limits.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_PROTO_LIMITS_H
#define VX_PROTO_LIMITS_H

/* A whole message: the limit that stock clients set themselves, and the largest int of
 * gRPC. */
#define VX_MESSAGE_BYTES_MAX 2147483647

/* All of a ModelInferRequest that is not raw tensor bytes: names, shapes, parameters, and
 * typed contents (what grpcurl users send; 4 MiB of it is a million floats).  It is walked field by
 * field, and a number at a time, so this bounds how long a message takes a thread. */
#define VX_INFER_REST_BYTES_MAX (4 << 20)

/* The same without typed contents: names, shapes and parameters.  It is copied, and protobuf-c makes
 * copies of it.  An honest request has less than 100 KB, with all inputs, outputs and parameters. */
#define VX_INFER_NAMES_BYTES_MAX (1 << 20)

/* Texts, sub-messages and unknown fields of a message: protobuf-c takes up to some 150 bytes for
 * one of two bytes, and time.  12 messages of a million took 150 MB for a moment, and a client beside 900
 * with 8,000 each waited for 0.84 s (p99).  A request with all inputs and outputs, 64 parameters and a
 * region for each tensor has some 600. */
#define VX_PARTS_MAX 2048

/* Room for names, shapes and parameters, for the copies of their texts, and for what protobuf-c
 * makes of as many parts as there may be: 4 MiB at most.  Each thread that decodes has it. */
#define VX_INFER_SCRATCH_BYTES (6 << 20)

/* Room for a small message of any other RPC and for its answer, as protobuf-c has them. */
#define VX_CONTROL_SCRATCH_BYTES (40 << 20)

/* A message of any other RPC: the largest have names and parameters.  It stays in memory
 * until it is answered, and there may be one for each call. */
#define VX_QUESTION_BYTES_MAX (16 << 10)

/* Its answer: the longest is the statistics of all models.  Stock clients take 4 MiB. */
#define VX_ANSWER_BYTES_MAX (4 << 20)

/* Inputs of one request: coords and feats, and room for unexpected ones, so that the
 * error can name them. */
#define VX_INPUTS_MAX 8

/* Outputs that a request may name: as many as a model may have (VX_OUTPUTS_MAX;
 * server/call/admit.c asserts that they are equal). */
#define VX_REQUEST_OUTPUTS_MAX 16

/* Entries of a parameter map.  The protocol knows 8 keys, and stock clients send no more.
 * Small, because each key is compared with those behind it. */
#define VX_PARAMETERS_MAX 64
/* Voxels of a spatial_shape along an axis: the range of coordinates from 0 on. */
#define VX_SHAPE_AXIS_MAX 131072

/* Dimensions of a shape: ours have 2; stock clients' tests send up to 4. */
#define VX_RANK_MAX 8

/* A request id with its NUL, longer than any UUID or trace id; the answer repeats it. */
#define VX_REQUEST_ID_BYTES 256

/* A name on the wire, with its NUL. */
#define VX_WIRE_NAME_BYTES 128

/* Shared memory regions of all clients together: a few clients, each with one region for
 * each input and output. */
#define VX_REGIONS_MAX 256

#endif
