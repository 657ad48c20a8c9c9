/* page - what the admin port answers: metrics, health, and a page for people.
 *
 *   GET /                        the page: devices, models, queue, caches, latencies, failures
 *   GET /live.js ...             the files of the page, from the binary
 *   GET /status.json             what the page shows, for the page and other programs
 *   GET /metrics                 Prometheus text
 *   GET /v2/health/live          200 while the loop runs
 *   GET /v2/health/ready         200, or 503 and why not
 *   GET /v2/models/NAME/ready    200, 503 or 404; also .../NAME/versions/V/ready
 *
 * Health is JSON, with the reason in "why" when the answer is no.  Everything is computed
 * from the sources when the request comes; nothing is kept between requests.
 *
 *   vx_page_answer(&sources, request, reply);
 *
 * Thread   loop.
 * Limits   the reply's buffer; a page that does not fit is answered 500.
 * Fails    never; an error is an HTTP status.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_PAGE_H
#define VX_SERVER_PAGE_H

#include "server/http/http.h"
#include "server/metrics/metrics.h"

void vx_page_answer(const struct vx_metrics_sources *sources,
                    const struct vx_http_request *request, struct vx_http_reply *reply);

#endif
