/* codec_sample - one good ModelInferRequest to change, and slots of plain memory to parse into.
 *
 * Owner    one sample per test; slots are counted, none may be left.
 * Thread   one.
 * Fails    a check of Check's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_UNIT_CODEC_SAMPLE_H
#define VX_TESTS_UNIT_CODEC_SAMPLE_H

#include "open_inference.pb-c.h"
#include "proto/codec.h"

#define MESSAGE_BYTES 4096 /* the sample is 200 */

struct codec_sample {
    Inference__ModelInferRequest request;
    Inference__ModelInferRequest__InferInputTensor inputs[2], *input_list[2];
    ProtobufCBinaryData raws[2];
    Inference__ModelInferRequest__InferRequestedOutputTensor output, *output_list[1];
    Inference__ModelInferRequest__ParametersEntry entry, *entry_list[1];
    Inference__InferParameter parameter;
    Inference__InferTensorContents contents[2];
};

extern u8 codec_coords_bytes[48], codec_feats_bytes[24]; /* the sample's tensors */
extern size_t codec_slot_limit;                          /* bytes that can be in slots */
extern int codec_slots_out;

void codec_set_up(void); /* fixture of every test */
void codec_tear_down(void);

void codec_sample_init(struct codec_sample *s);
size_t codec_sample_pack(const struct codec_sample *s, u8 *out);

/* On failure no slot may be taken: checked. */
vx_status codec_parse(const struct vx_spans *spans, struct vx_why *why,
                      struct vx_request *request);
vx_status codec_parse_flat(const u8 *bytes, size_t length, struct vx_why *why,
                           struct vx_request *request);
void codec_check_sample(const struct vx_request *request);

void codec_slots_give(void *context, struct vx_slot *slot);
u8 *codec_slots_view(void *context, const struct vx_slot *slot);
void codec_give_back(struct vx_request *request);

extern u64 codec_random_state; /* set it to a seed first */
u64 codec_random_below(u64 below);

#endif
