/* codec_judge - derives from what protobuf-c unpacked, independently of the codec, what
 * the codec must do with a request: accept or refuse, and with which content.
 *
 *   bool fine = oracle && judge_request(oracle);
 *   if (fine) judge_check(oracle, &parse);
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_UNIT_CODEC_JUDGE_H
#define VX_TESTS_UNIT_CODEC_JUDGE_H

#include "open_inference.pb-c.h"
#include "tests/unit/proto/codec_harness.h"

bool judge_request(const Inference__ModelInferRequest *request);
/* Fails the test unless the request has what the message had. */
void judge_check(const Inference__ModelInferRequest *oracle, const struct parse *parse);
/* How many inputs in shared memory were checked. */
extern u64 judge_in_regions;

#endif
