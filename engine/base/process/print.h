/* print - prints text for a person at a terminal; a daemon logs instead (log.h).
 *
 * Thread   any.
 * Fails    never: when the terminal is closed, the text is lost.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_PRINT_H
#define VX_ENGINE_BASE_PRINT_H

#include "engine/base/types.h"

VX_PRINTF(1, 2) void vx_print(const char *format, ...);       /* standard output */
VX_PRINTF(1, 2) void vx_print_error(const char *format, ...); /* standard error */

#endif
