/* tls_first - whether a connection begins as TLS does, before anything is spent on it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/tls/tls.h"

/* A record: type, version (major, minor), length; then the message's type and length, and
 * the version of the ClientHello. */
#define HEAD_BYTES     5
#define TYPE_HANDSHAKE 22
#define MAJOR          3
#define CLIENT_HELLO   1
#define FRAGMENT_MAX   16384
/* Two versions, a random number, three lengths: no ClientHello is smaller. */
#define HELLO_BYTES_MIN 38

static size_t fragment_bytes(const u8 *bytes)
{
    return (size_t)bytes[3] << 8 | bytes[4];
}

enum vx_tls_first vx_tls_first(const u8 *bytes, size_t got, size_t there)
{
    if (got > 0 && bytes[0] != TYPE_HANDSHAKE) return VX_TLS_FIRST_WRONG;
    if (got > 1 && bytes[1] != MAJOR) return VX_TLS_FIRST_WRONG;
    if (got < HEAD_BYTES) return VX_TLS_FIRST_PART;
    size_t fragment = fragment_bytes(bytes);
    if (fragment < HELLO_BYTES_MIN || fragment > FRAGMENT_MAX) return VX_TLS_FIRST_WRONG;
    if (got > HEAD_BYTES && bytes[HEAD_BYTES] != CLIENT_HELLO) return VX_TLS_FIRST_WRONG;
    if (got > 9 && bytes[9] != MAJOR) return VX_TLS_FIRST_WRONG;
    return there < HEAD_BYTES + fragment ? VX_TLS_FIRST_PART : VX_TLS_FIRST_WHOLE;
}
