/* sentence - parts of error sentences about model files.
 *
 * Every such sentence names the file, the place in it, what was expected and what was
 * found.  The innermost function writes the last two; its callers put the place in front
 * while they return the status.
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
#include "engine/base/text/typed.h"

/* The name of a file in a sentence: short, to leave room for the error. */
#define VX_LABEL_BYTES 72

/* Puts a formatted text in front of the sentence in `why`, if it has one. */
VX_PRINTF(2, 3) void vx_why_prefix(struct vx_why *why, const char *format, ...);

/* Puts a text behind the sentence in `why`. */
void vx_why_add(struct vx_why *why, const char *text);

/* The last `parts` components of a path; if too long, "..." and their end. */
void vx_label_of_path(const char *path, int parts, char label[VX_LABEL_BYTES]);

/* A text that grows and is cut when its buffer is full. */
struct vx_page {
    char *text;
    size_t bytes, used;
};
VX_PRINTF(2, 3) void vx_page_add(struct vx_page *page, const char *format, ...);

#endif
