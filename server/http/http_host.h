/* http_host - by which names a port on the loopback may be asked.
 *
 * A page of evil.example may have its own name resolve to 127.0.0.1 once it is open, and then
 * reads what is there as its own (DNS rebinding): its browser thinks both are one site.  What
 * it cannot do is to make the browser send another name than its own as Host.  So a port that
 * is bound to the loopback answers for names that no stranger can have: addresses,
 * `localhost`, and what --http says.
 *
 *   if (http->local && !vx_http_host_fits(host, own)) ...403...
 *
 * Owner    nothing.
 * Thread   any.  Pure.
 * Limits   none.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_HTTP_HOST_H
#define VX_SERVER_HTTP_HOST_H

#include "engine/base/types.h"

#include <sys/socket.h>

/* "127.0.0.1:8002", "[::1]", "LOCALHOST"; "" = none came, which no browser does.  `own` is a
 * name that fits, too. */
bool vx_http_host_fits(const char *host, const char *own);
/* Whether only processes of this machine reach the address. */
bool vx_http_host_is_loopback(const struct sockaddr_storage *address);

#endif
