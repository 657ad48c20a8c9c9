/* foreign - memory that another process may change, cut or take away while we look at it.
 *
 * A shared memory object that its client truncates makes the next access a SIGBUS.  Here
 * that access reads zeros instead: the handler puts anonymous pages where the object ended
 * and marks the mapping broken, and who was reading asks afterwards.  It holds for every
 * thread of the process, the driver's own too, and for an object whose file system is full.
 * A SIGBUS anywhere else is what it always was.
 *
 *   vx_foreign_guard();                                   before the first map
 *   VX_TRY(vx_foreign_map(fd, offset, bytes, &why, &foreign));
 *   memcpy(ours, vx_foreign_at(foreign), bytes);
 *   if (vx_foreign_broken(foreign)) ...
 *   vx_foreign_unmap(&foreign);
 *
 * Nothing that is read here is believed twice: copy, then check the copy.
 *
 * Owner    the caller; the fd stays the caller's.  Nobody reads a mapping that is being
 *          unmapped.
 * Thread   any that does not block SIGBUS.  The handler calls mmap and touches atomics alone.
 * Limits   VX_FOREIGN_MAX mappings.
 * Fails    INVALID_ARGUMENT an object that is smaller; RESOURCE_EXHAUSTED.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_FOREIGN_H
#define VX_SERVER_FOREIGN_H

#include "engine/base/status.h"
#include "proto/limits.h"

/* A worker that is a thread of the front maps every region a second time; and a worker has
 * memory that it lets go of while its row is another's. */
#define VX_FOREIGN_MAX (2 * VX_REGIONS_MAX + 32)

struct vx_foreign;

/* Once per process; again is nothing. */
void vx_foreign_guard(void);
/* [offset, offset + bytes) of the object; the offset need not be a page's. */
VX_MUST_USE vx_status vx_foreign_map(int fd, u64 offset, u64 bytes, struct vx_why *why,
                                     struct vx_foreign **foreign);
void vx_foreign_unmap(struct vx_foreign **foreign);
u8 *vx_foreign_at(const struct vx_foreign *foreign);
u64 vx_foreign_bytes(const struct vx_foreign *foreign);
/* The whole pages around it, as page-locking wants them. */
void vx_foreign_pages(const struct vx_foreign *foreign, void **begin, u64 *bytes);
bool vx_foreign_broken(const struct vx_foreign *foreign);

#endif
