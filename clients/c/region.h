/* region - what a region is inside the library, and the messages that make the server know it.
 *
 * The object has a name that nobody can guess, for as long as the server takes to open it:
 * made (shm_open O_EXCL 0600), registered, unlinked.  The same text without its slash is
 * the region's name in requests, so that it is no other client's on a server whose names
 * are all in one list.
 *
 *   voxel_region_open -> memory made -> SystemSharedMemoryRegister -> unlinked
 *
 * Owner    whoever opened it; it borrows the client.
 * Thread   memory, bytes, name: any.  open, renew, close: when no request uses it.
 * Limits   the server's.
 * Fails    see voxel.h.
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

/* The requests; for tests. */
void voxel_region_pack_register(const struct voxel_region *region,
                                struct voxel_writer *w);
void voxel_region_pack_unregister(const struct voxel_region *region,
                                  struct voxel_writer *w);

#endif
