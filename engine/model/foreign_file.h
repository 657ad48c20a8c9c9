/* foreign_file - what a file is that was given as weights and is no safetensors file.
 *
 * Checkpoints come in many wrappings, and each has a mark at its beginning.
 *
 *   const char *what = vx_foreign_file(data, bytes);      ("a zip archive, as ...", or NULL)
 *
 * Owner    the text is static.
 * Thread   any; pure.
 * Fails    never: NULL when the beginning may be a safetensors file's, or is nothing known.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_MODEL_FOREIGN_FILE_H
#define VX_ENGINE_MODEL_FOREIGN_FILE_H

#include "engine/base/types.h"

const char *vx_foreign_file(const u8 *data, size_t bytes);

#endif
