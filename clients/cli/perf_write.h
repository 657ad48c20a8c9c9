/* perf_write - writes grids for perf_analyzer: one JSON file, or raw files.
 *
 *   perf_write_begin(file);
 *   for (...) perf_write_grid(file, tensors.list, PERF_BASE64, first);
 *   perf_write_end(file);
 *
 * The JSON is
 *   {"data":[{"coords":{"content":[...],"shape":[N,4]},"feats":{...}}, ...]}
 * with one step of perf_analyzer's single stream for each grid; or with
 *   {"b64":"...","shape":[...]}
 * for each tensor, which is smaller, exact for every type and much faster to read.
 *
 * Owner    borrows all.
 * Thread   any.
 * Limits   none.
 * Fails    perf_write_raw: INVALID_ARGUMENT for a name that cannot be a file's, DATA_LOSS
 *          if the file cannot be written.  The others set ferror of the file.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_PERF_WRITE_H
#define VOXEL_CLIENTS_CLI_PERF_WRITE_H

#include "clients/c/voxel.h"

#include <stdio.h>

/* Numbers can be read by people, but hold only INT32 and FP32. */
enum perf_content { PERF_NUMBERS, PERF_BASE64 };

void perf_write_begin(FILE *to);
void perf_write_grid(FILE *to, const struct voxel_tensor tensors[2],
                     enum perf_content content, bool first);
void perf_write_end(FILE *to);

/* Base64 of RFC 4648, with padding, in one line. */
void perf_write_base64(FILE *to, const void *data, size_t bytes);
/* A JSON string with its quotes. */
void perf_write_text(FILE *to, const char *text);

/* Writes the tensor's bytes alone, into a file of its name in `folder`: perf_analyzer
 * reads it if --input-data is the folder. */
enum voxel_code perf_write_raw(const char *folder, const struct voxel_tensor *tensor,
                               struct voxel_error *error);

#endif
