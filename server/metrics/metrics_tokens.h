/* metrics_tokens - the series of each entry of the file of tokens.
 *
 * Owner    the caller.
 * Thread   loop.
 * Limits   one series of each row for each entry, VX_ACCESS_ENTRIES_MAX.
 * Fails    never; the text is `full` if something is missing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_METRICS_TOKENS_H
#define VX_SERVER_METRICS_TOKENS_H

#include "server/access/access.h"
#include "server/base/text.h"

/* `access` NULL: there are none. */
void vx_metrics_render_tokens(struct vx_access *access, struct vx_text *text);

#endif
