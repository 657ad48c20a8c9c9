/* notes - what loads, and may still not be what was trained.
 *
 * A checkpoint does not say everything about its network, and a description that leaves
 * something out can load without an error.  What the two files show together is said here,
 * for `voxeld check` and the log of `voxeld serve`: tensors that nothing reads, tensors that two layers read,
 * norms whose statistics were never gathered, an eps that nobody said.
 *
 *   vx_notes_write(network, file, &page);
 *
 * Owner    nothing; the page is the caller's.
 * Thread   any.
 * Limits   the page's; lists of names are cut and counted.
 * Fails    never: a file that cannot be read has failed before.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_MODEL_NOTES_H
#define VX_ENGINE_MODEL_NOTES_H

#include "engine/model/network.h"
#include "engine/model/safetensors.h"
#include "engine/model/sentence.h"

/* One note a line.  The files have passed vx_weights_check.  Adds nothing when there is nothing to say. */
void vx_notes_write(const struct vx_network *network, const struct vx_safetensors *file,
                    struct vx_page *page);

#endif
