/* sentence - the words that error sentences about model files share.
 *
 * Every such sentence names the file, the thing in it, what was expected and what came.
 * The innermost function says the last two; callers put the place in front as the status
 * goes by.
 *
 *   vx_why_prefix(why, "%s: layer \"%s\": ", label, layer->name);
 *   vx_label_of_path(path, 2, label);                  ("normals/network.json")
 *
 * Owner    the caller's buffers.
 * Thread   any; pure.
 * Limits   texts are cut to fit.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_MODEL_SENTENCE_H
#define VX_ENGINE_MODEL_SENTENCE_H

#include "engine/base/status.h"
#include "engine/base/typed.h"

/* How a sentence calls a file: short enough to leave room for what is wrong with it. */
#define VX_LABEL_BYTES 72

/* Puts a formatted text in front of what the why says. */
VX_PRINTF(2, 3) void vx_why_prefix(struct vx_why *why, const char *format, ...);

/* The last `parts` components of a path; of a very long one the end, behind "...". */
void vx_label_of_path(const char *path, int parts, char label[VX_LABEL_BYTES]);

/* Text that grows line by line and is cut when it is full. */
struct vx_page {
    char *text;
    size_t bytes, used;
};
VX_PRINTF(2, 3) void vx_page_add(struct vx_page *page, const char *format, ...);

#endif
