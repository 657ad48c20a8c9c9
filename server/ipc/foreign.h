/* foreign - memory that another process may change, truncate or take away at any time.
 *
 * When a client truncates its shared memory object, the next access to it raises SIGBUS.
 * Here such an access reads zeros instead: the signal handler maps anonymous pages where
 * the object has ended and marks the mapping as broken, which the reader checks after
 * reading.  This works for every thread of the process, the driver's own included, and
 * also when the object's file system is full.  A SIGBUS at any other address is passed on
 * to the handler that was installed before, or ends the process.
 *
 *   vx_foreign_guard();                                   before the first map
 *   VX_TRY(vx_foreign_map(fd, offset, bytes, &why, &foreign));
 *   memcpy(ours, vx_foreign_at(foreign), bytes);
 *   if (vx_foreign_broken(foreign)) ...
 *   vx_foreign_unmap(&foreign);
 *
 * The memory can change between two reads: copy it, then check the copy.
 *
 * Owner    the caller; the fd stays the caller's.  A mapping must not be read while it is
 *          being unmapped.
 * Thread   any that does not block SIGBUS.  The handler calls only mmap and touches only
 *          atomics.
 * Limits   VX_FOREIGN_MAX mappings.
 * Fails    INVALID_ARGUMENT when the object is smaller; RESOURCE_EXHAUSTED.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_FOREIGN_H
#define VX_SERVER_FOREIGN_H

#include "engine/base/status.h"
#include "proto/limits.h"

/* Twice VX_REGIONS_MAX: a worker that is a thread of the front maps every region a second
 * time.  The rest: a worker may still be releasing a region's memory when its row is in
 * use again. */
#define VX_FOREIGN_MAX (2 * VX_REGIONS_MAX + 32)

struct vx_foreign;

/* Installs the SIGBUS handler, once per process; further calls do nothing. */
void vx_foreign_guard(void);
/* Maps [offset, offset + bytes) of the object; the offset need not be page-aligned. */
VX_MUST_USE vx_status vx_foreign_map(int fd, u64 offset, u64 bytes, struct vx_why *why,
                                     struct vx_foreign **foreign);
void vx_foreign_unmap(struct vx_foreign **foreign);
u8 *vx_foreign_at(const struct vx_foreign *foreign);
u64 vx_foreign_bytes(const struct vx_foreign *foreign);
/* The whole pages that contain the mapping, for page-locking. */
void vx_foreign_pages(const struct vx_foreign *foreign, void **begin, u64 *bytes);
bool vx_foreign_broken(const struct vx_foreign *foreign);

#endif
