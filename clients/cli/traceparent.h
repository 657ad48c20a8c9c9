/* traceparent - which texts are W3C's header of that name: the server ignores all others, as
 * W3C demands, and the trace would lack the request without a word.
 *
 *   if (!traceparent_is("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")) ...
 *
 * Owner    nothing.
 * Thread   any; pure.
 * Limits   none.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_TRACEPARENT_H
#define VOXEL_CLIENTS_CLI_TRACEPARENT_H

#include <stdbool.h>

bool traceparent_is(const char *text);

#endif
