/* op_hint - suggests what an unknown op or key in network.json was meant to be.
 *
 * A new user writes the word of the library that trained the network.  The nearest word
 * by spelling is then often wrong ("elu" is one letter from "relu").  So the hint tries
 * in this order: the same word in another spelling, a word of another library, an op that
 * exists but is not served, and only then the nearest spelling.
 *
 * Keys of a layer get hints, too: "kernel_size" is "kernel" here, "stride" is unknown.
 *
 *   vx_op_hint("spconv.SubMConv3d", out)   ("; did you mean \"subm_conv\"?")
 *
 * Owner    the caller's buffer.
 * Thread   any; pure.
 * Limits   VX_OP_HINT_BYTES; texts are cut to fit.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_MODEL_OP_HINT_H
#define VX_ENGINE_MODEL_OP_HINT_H

#include "engine/base/types.h"

#define VX_OP_HINT_BYTES 224

/* A hint for an op that does not exist.  Returns `out`. */
const char *vx_op_hint(const char *word, char out[VX_OP_HINT_BYTES]);
/* A hint for a key of a layer; "" when no other library has it.  Returns `out`. */
const char *vx_key_hint(const char *word, char out[VX_OP_HINT_BYTES]);

#endif
