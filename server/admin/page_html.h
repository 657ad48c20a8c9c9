/* page_html - the page for people as it comes first, and the files that it asks for.
 *
 * A browser with JavaScript replaces the content by the live page (live.js); without, it
 * reloads this one.  There are no styles and no scripts in the HTML itself, so that the
 * policy that is sent with it (http_connection.c) forbids both.
 *
 * Thread   loop.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_PAGE_HTML_H
#define VX_SERVER_PAGE_HTML_H

#include "server/base/text.h"
#include "server/metrics/metrics.h"

/* page_head.html: everything before the content. */
extern const char vx_page_head[];

/* A file beside the page; the last has no path. */
struct vx_page_file {
    const char *path, *type;
    const char *bytes;
    size_t length;
};
extern const struct vx_page_file vx_page_files[];

/* `why` says why the server is not ready; "" when it is. */
void vx_page_html(const struct vx_metrics_sources *sources, const char *why,
                  struct vx_text *text);

#endif
