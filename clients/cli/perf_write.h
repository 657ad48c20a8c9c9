/* perf_write - grids as perf_analyzer reads them: one JSON file, or raw files.
 *
 *   perf_write_begin(file);
 *   for (...) perf_write_grid(file, tensors.list, PERF_BASE64, first);
 *   perf_write_end(file);
 *
 * The JSON is {"data":[{"coords":{"content":[...],"shape":[N,4]},"feats":{...}}, ...]},
 * a step of perf_analyzer's one stream for each grid; or {"b64":"...","shape":[...]},
 * which is smaller, exact for every type and much faster to read.
 *
 * Owner    borrows all.
 * Thread   any.
 * Limits   none.
 * Fails    never by itself: ferror says it at the end.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_PERF_WRITE_H
#define VOXEL_CLIENTS_CLI_PERF_WRITE_H

#include "clients/c/voxel.h"

#include <stdio.h>

/* Numbers are for people and for types that JSON can say: INT32 and FP32. */
enum perf_content { PERF_NUMBERS, PERF_BASE64 };

void perf_write_begin(FILE *to);
void perf_write_grid(FILE *to, const struct voxel_tensor tensors[2],
                     enum perf_content content, bool first);
void perf_write_end(FILE *to);

/* RFC 4648, with padding, in one line. */
void perf_write_base64(FILE *to, const void *data, size_t bytes);
/* A JSON string with its quotes. */
void perf_write_text(FILE *to, const char *text);

/* The tensor's bytes alone, in a file of its name in `folder`: what perf_analyzer reads
 * when --input-data is a folder. */
enum voxel_code perf_write_raw(const char *folder, const struct voxel_tensor *tensor,
                               struct voxel_error *error);

#endif
