/* notes - warnings about a model that loads but may not be what was trained.
 *
 * A checkpoint does not describe its whole network, and a description that leaves
 * something out can load without an error.  So `voxeld check` and the log of `voxeld
 * serve` report what looks wrong in the two files together: tensors that no layer reads,
 * tensors that two layers read, NaN or infinity in a weight, norms whose statistics were
 * never gathered or are 0, a weight of zeros, a group_norm, an eps that is missing or unusually
 * large, a layout that was taken from the shape, layouts of several libraries, rule "floor" where
 * spconv may make fewer voxels, a network of one or two axes whose columns nothing checks, a dense
 * tensor that is smaller than its set, children without a limit.
 *
 *   VX_TRY(vx_notes_write(network, file, &why, &page));
 *
 * Owner    the caller owns the page.
 * Thread   any.
 * Limits   the size of the page; a note names at most eight tensors or layers and counts
 *          the rest.
 * Fails    DATA_LOSS when the file can no longer be read (source.h); RESOURCE_EXHAUSTED.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_MODEL_NOTES_H
#define VX_ENGINE_MODEL_NOTES_H

#include "engine/base/text/sentence.h"
#include "engine/network/network.h"
#include "engine/weights/safetensors.h"

/* Adds the notes to the page, one a line, after vx_weights_check has passed. */
VX_MUST_USE vx_status vx_notes_write(const struct vx_network *network,
                                     const struct vx_safetensors *file,
                                     struct vx_why *why, struct vx_page *page);

#endif
