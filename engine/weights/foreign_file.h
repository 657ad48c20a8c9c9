/* foreign_file - names the format of a weights file that is not a safetensors file.
 *
 * Checkpoints come in many formats, and most can be recognised by their first bytes.
 *
 *   const char *what = vx_foreign_file(data, bytes);   ("a zip archive, as ...", or NULL)
 *
 * Owner    the text is static.
 * Thread   any; pure.
 * Fails    never: NULL when the file may be a safetensors file, or its format is unknown.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_MODEL_FOREIGN_FILE_H
#define VX_ENGINE_MODEL_FOREIGN_FILE_H

#include "engine/base/types.h"

const char *vx_foreign_file(const u8 *data, size_t bytes);

#endif
