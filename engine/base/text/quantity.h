/* quantity - a whole number of bytes or of time, as people write it: "4G", "30s", "1048576".
 *
 * Settings, their file and the tools take the same words.
 *
 *   if (!vx_quantity_parse("bytes", "4G", &number))
 *       ...print "expected a whole number of bytes%s" with vx_quantity_suffixes...
 *
 * Owner    the caller's buffers.
 * Thread   any; pure.
 * Limits   i64.
 * Fails    false; what was expected is the caller's to say.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_QUANTITY_H
#define VX_ENGINE_BASE_QUANTITY_H

#include "engine/base/types.h"

#define VX_QUANTITY_SUFFIXES_BYTES 64

/* False when the text is not a whole number of the unit: "bytes" takes K, KiB, M, MiB, G,
 * GiB, T and TiB (powers of 1024), "ms" and "us" take us, ms and s, others no suffix. */
bool vx_quantity_parse(const char *unit, const char *text, i64 *number);
/* What may follow a number of the unit: ", with K, KiB, ... or no suffix"; "" if nothing. */
const char *vx_quantity_suffixes(const char *unit, char out[VX_QUANTITY_SUFFIXES_BYTES]);

#endif
