/* zip - what a .npz needs of the zip format: the directory at its end, an entry's bytes, their checksum.
 *
 *   struct zip zip;
 *   struct zip_entry entry;
 *   if (zip_open(file, &zip, &error)) ...
 *   for (size_t i = 0; i < zip.count && zip_next(&zip, &entry); i++)
 *       zip_content(file, &entry, &content, &error);
 *
 * Owner    borrows the file's bytes; a content is the caller's, voxel_memory_give.
 * Thread   any.
 * Limits   entries below 4 GiB, stored or deflated; none inflates to more than 1040 times its bytes.
 * Fails    INVALID_ARGUMENT for damage, UNIMPLEMENTED for other ways of packing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_ZIP_H
#define VOXEL_CLIENTS_CLI_ZIP_H

#include "clients/cli/points.h"

struct zip_entry {
    const char *name; /* not ended by a 0 */
    size_t name_bytes;
    unsigned method;
    uint32_t crc;
    size_t packed;
    size_t size;
    size_t local; /* offset of the local header */
};

/* A directory, and how far it was read. */
struct zip {
    struct bytes file;
    size_t count; /* of entries */
    size_t at;    /* offset of the next */
};
enum voxel_code zip_open(struct bytes file, struct zip *zip, struct voxel_error *error);
/* False when the entry is damaged; to be called `count` times at most. */
bool zip_next(struct zip *zip, struct zip_entry *entry);

/* The entry's content, inflated and checked, in new memory. */
enum voxel_code zip_content(struct bytes file, const struct zip_entry *entry,
                            uint8_t **content, struct voxel_error *error);
/* Its first bytes, which are not checked: how many there are, 0 for what zip_content would refuse. */
size_t zip_head(struct bytes file, const struct zip_entry *entry, uint8_t *out,
                size_t room);

#endif
