/* region - a region inside the library, and the messages that register it at the server.
 *
 * The shared memory object has a random name that nobody can guess, and only until the
 * server has opened it: the library makes it (shm_open O_EXCL 0600), registers it,
 * unlinks it.  The same text without its slash is the region's name in requests, so that
 * no other client has that name on a server that keeps all names in one list.
 *
 *   voxel_region_open -> memory made -> SystemSharedMemoryRegister -> unlinked
 *
 * Owner    the caller who opened it; it borrows the client.
 * Thread   memory, bytes, name: any.  open, renew, close: when no request uses it.
 * Limits   the server's.
 * Fails    as voxel.h says.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_C_REGION_H
#define VOXEL_CLIENTS_C_REGION_H

#include "clients/c/voxel.h"
#include "clients/c/wire.h"

/* "/voxel-" and 32 hexadecimal digits. */
#define VOXEL_KEY_BYTES 40

struct voxel_region {
    struct voxel_client *client;
    char key[VOXEL_KEY_BYTES];
    const char *name; /* the key without its slash */
    size_t bytes;
    void *memory; /* NULL on a device */
    size_t mapped_bytes;
    struct voxel_device_memory device;
};

/* Where a tensor's bytes are, in a region or not; NULL if this process cannot read them. */
const uint8_t *voxel_region_tensor(const struct voxel_tensor *tensor);

/* Write the request messages; public for tests. */
void voxel_region_pack_register(const struct voxel_region *region,
                                struct voxel_writer *w);
void voxel_region_pack_unregister(const struct voxel_region *region,
                                  struct voxel_writer *w);

#endif
