/* access_group - what a token may be allowed: the methods of service.def in groups.
 *
 * Owner    static.
 * Thread   any.
 * Fails    never.  A method without a group does not compile.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_ACCESS_GROUP_H
#define VX_SERVER_ACCESS_GROUP_H

#include "engine/base/types.h"

enum vx_access_group {
    VX_ACCESS_HEALTH,   /* is it alive, is it ready: for probes */
    VX_ACCESS_INFER,    /* inferences, on streams or not */
    VX_ACCESS_READ,     /* metadata, configuration, statistics, index, reflection */
    VX_ACCESS_LOAD,     /* loads and unloads */
    VX_ACCESS_SETTINGS, /* log and trace settings, to read or to change */
    VX_ACCESS_MEMORY,   /* shared memory: registers, lists, unregisters */
    VX_ACCESS_ADMIN,    /* the pages of the admin port; no method */
    VX_ACCESS_GROUPS
};

/* Of a row of proto/service.def. */
enum vx_access_group vx_access_group_of(i32 method);
/* "infer", as in the file of tokens. */
const char *vx_access_group_name(enum vx_access_group group);
/* "ModelInfer" */
const char *vx_access_method_name(i32 method);

#endif
