/* print - prints text for a person at a terminal; a daemon logs instead (log.h).
 *
 * Thread   any.
 * Fails    end: false, and errno, when a part of the text was lost, on a full disk say.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_PRINT_H
#define VX_ENGINE_BASE_PRINT_H

#include "engine/base/types.h"

VX_PRINTF(1, 2) void vx_print(const char *format, ...);       /* standard output */
VX_PRINTF(1, 2) void vx_print_error(const char *format, ...); /* standard error */

/* Last, by main: whether all that went to standard output has arrived. */
VX_MUST_USE bool vx_print_end(void);

#endif
