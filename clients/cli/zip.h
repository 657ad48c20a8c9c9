/* zip - reads a .npz's zip: the directory at its end, the entries' bytes and checksums.
 *
 *   struct zip zip;
 *   struct zip_entry entry;
 *   if (zip_open(file, &zip, &error)) ...
 *   for (size_t i = 0; i < zip.count && zip_next(&zip, &entry); i++)
 *       zip_content(file, &entry, &content, &error);
 *
 * Owner    borrows the file's bytes; the caller frees a content with voxel_memory_give.
 * Thread   any.
 * Limits   entries below 4 GiB, stored or deflated; none inflates to more than 1040 times
 *          its bytes.
 * Fails    INVALID_ARGUMENT for damage, UNIMPLEMENTED for other methods of compression,
 *          RESOURCE_EXHAUSTED without memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_ZIP_H
#define VOXEL_CLIENTS_CLI_ZIP_H

#include "clients/cli/points.h"

struct zip_entry {
    const char *name; /* not NUL-terminated */
    size_t name_bytes;
    unsigned method;
    uint32_t crc;
    size_t packed;
    size_t size;
    size_t local; /* offset of the local header */
};

/* A zip's directory, and how far it has been read. */
struct zip {
    struct bytes file;
    size_t count; /* of entries */
    size_t at;    /* offset of the next */
};
enum voxel_code zip_open(struct bytes file, struct zip *zip, struct voxel_error *error);
/* Reads the next entry; false if it is damaged.  Call it `count` times at most. */
bool zip_next(struct zip *zip, struct zip_entry *entry);

/* The entry's content, inflated and checked, in new memory. */
enum voxel_code zip_content(struct bytes file, const struct zip_entry *entry,
                            uint8_t **content, struct voxel_error *error);
/* Copies the entry's first bytes, without checking their checksum; returns how many, at
 * most `room`.  0 for an entry that zip_content refuses for its place or method. */
size_t zip_head(struct bytes file, const struct zip_entry *entry, uint8_t *out,
                size_t room);

#endif
