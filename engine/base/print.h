/* print - words for the person at the terminal; the daemon itself logs (log.h).
 *
 * Thread   any.
 * Fails    never: a closed terminal loses the words.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_PRINT_H
#define VX_ENGINE_BASE_PRINT_H

#include "engine/base/types.h"

VX_PRINTF(1, 2) void vx_print(const char *format, ...);       /* standard output */
VX_PRINTF(1, 2) void vx_print_error(const char *format, ...); /* standard error */

#endif
