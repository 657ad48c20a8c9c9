/* sentence - the words that error sentences about model files share.
 *
 * Every such sentence names the file, the thing in it, what was expected and what came.
 * The innermost function says the last two; callers put the place in front as the status
 * goes by.
 *
 *   vx_why_prefix(why, "%s: layer \"%s\": ", label, layer->name);
 *   vx_label_of_path(path, 2, label);                  ("normals/network.json")
 *   vx_nearest_text(why_key, known, known_count, out); ("; the nearest is \"channels\"")
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

/* How a sentence calls a file: short enough to leave room for what is wrong with it. */
#define VX_LABEL_BYTES 72
/* Characters of a name shown in a sentence; longer ones are cut. */
#define VX_NAME_SHOWN 64
/* Longest text of vx_nearest_text, with its NUL. */
#define VX_NEAREST_BYTES 160

/* Puts a formatted text in front of what the why says. */
VX_PRINTF(2, 3) void vx_why_prefix(struct vx_why *why, const char *format, ...);

/* The last `parts` components of a path; of a very long one the end, behind "...". */
void vx_label_of_path(const char *path, int parts, char label[VX_LABEL_BYTES]);

/* "; the nearest is "x"" when one of `known` (NULLs are skipped) differs from `name` by a
 * slip of the fingers, else "; known: a, b, c". */
const char *vx_nearest_text(const char *name, const char *const *known,
                            size_t known_count, char out[VX_NEAREST_BYTES]);

/* Text that grows line by line and is cut when it is full. */
struct vx_page {
    char *text;
    size_t bytes, used;
};
VX_PRINTF(2, 3) void vx_page_add(struct vx_page *page, const char *format, ...);

#endif
