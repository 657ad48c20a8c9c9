/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/rpc_origins.h"

#include "engine/base/process/check.h"

#include <pthread.h>
#include <sys/random.h>

/* So many numbers are looked at from the first on, until the source's own is found: one that became
 * free hides no later one.  Where all of them are taken, which some thousand of 16,384 never are, an
 * origin shares the first. */
#define LOOKS 256

static u64 origin_key;

static void origin_key_draw(void)
{
    /* Once the system has entropy, getrandom returns up to 256 bytes at once. */
    VX_ASSERT(getrandom(&origin_key, sizeof origin_key, 0) == sizeof origin_key);
}

/* By constants of MurmurHash3, and a number that nobody knows: with a plain hash a crowd could
 * choose addresses whose numbers lie where a client's does, until none was free there. */
static u32 first_of(u64 source)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    VX_ASSERT(!pthread_once(&once, origin_key_draw));
    source = (source ^ origin_key) * 0xff51afd7ed558ccdu;
    source = (source ^ source >> 33) * 0xc4ceb9fe1a85ec53u;
    return (u32)(source >> (64 - VX_PEER_ORIGIN_BITS));
}

u16 vx_rpc_origins_take(struct vx_rpc_origins *origins, u64 source)
{
    const u32 first = first_of(source);
    i32 found = -1;
    for (u32 i = 0; i < LOOKS; i++) {
        const u32 number = (first + i) % VX_PEER_ORIGINS;
        const struct vx_rpc_origin *row = &origins->rows[number];
        if (row->connections && row->source == source) {
            found = (i32)number;
            break;
        }
        if (!row->connections && found < 0) found = (i32)number;
    }
    struct vx_rpc_origin *row = &origins->rows[found < 0 ? (i32)first : found];
    if (!row->connections++) row->source = source;
    return (u16)(row - origins->rows);
}

void vx_rpc_origins_give(struct vx_rpc_origins *origins, u16 origin)
{
    VX_ASSERT(origins->rows[origin].connections > 0);
    origins->rows[origin].connections--;
}

bool vx_rpc_origins_are_free(const struct vx_rpc_origins *origins)
{
    for (u32 i = 0; i < VX_PEER_ORIGINS; i++)
        if (origins->rows[i].connections) return false;
    return true;
}
