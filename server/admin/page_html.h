/* page_html - the page for people: one HTML file without scripts, fonts or pictures.
 *
 * Thread   loop.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_PAGE_HTML_H
#define VX_SERVER_PAGE_HTML_H

#include "server/base/text.h"
#include "server/metrics/metrics.h"

/* page_head.html with page.css: everything before the first heading. */
extern const char vx_page_head[];

/* `why` says why the server is not ready; "" when it is. */
void vx_page_html(const struct vx_metrics_sources *sources, const char *why,
                  struct vx_text *text);

#endif
