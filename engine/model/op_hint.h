/* op_hint - what somebody meant by an op or a key that network.json does not have.
 *
 * A new user writes the word of the library that trained the network.  The nearest word by
 * spelling is then often a wrong one ("elu" is one letter from "relu"), so meaning comes
 * first: the same word in another spelling, a word of another library, an op that is known
 * and not served.  Spelling is asked last.
 *
 * The same for the keys of a layer: "kernel_size" is "kernel" here, and "stride" is not there.
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

const char *vx_op_hint(const char *word, char out[VX_OP_HINT_BYTES]);
/* "" when the key is none of other libraries'. */
const char *vx_key_hint(const char *word, char out[VX_OP_HINT_BYTES]);

#endif
