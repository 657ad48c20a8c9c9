/* status_json - the front's state as one JSON object: what the live page asks for.
 *
 * README.md lists the keys.  Everything is a number or a text; charts, units and colours
 * are the page's.  The cost is linear in models and workers, and allocates nothing.
 *
 * Owner    the sources and the text are borrowed for the call.
 * Thread   loop.
 * Limits   the text's buffer.
 * Fails    never; text.full is set when it does not fit.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_STATUS_JSON_H
#define VX_SERVER_STATUS_JSON_H

#include "server/base/text.h"
#include "server/metrics/metrics.h"

void vx_status_json(const struct vx_metrics_sources *sources, struct vx_text *text);

#endif
