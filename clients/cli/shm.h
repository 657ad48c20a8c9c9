/* shm - a request whose tensors lie in shared memory, for the commands' --shm.
 *
 *   struct shm_request shm;
 *   const struct shm_plan plan = {.info = info, .tensors = &tensors, .sets = 4};
 *   if (shm_request_open(client, &plan, &shm, &error)) ...
 *   request.places = shm_request_places(&shm, turn++); request.places_count = shm.outputs_count;
 *   shm_request_close(&shm);
 *
 * Owner    the caller, who closes it before the client; the tensors point into it from then on.
 * Thread   one.
 * Limits   VOXEL_OUTPUTS_SHM outputs; the server's on regions.
 * Fails    with the error of voxel_region_open; UNIMPLEMENTED for an output whose size is not
 *          known before it is there.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_SHM_H
#define VOXEL_CLIENTS_CLI_SHM_H

#include "clients/cli/commands.h"

#define VOXEL_OUTPUTS_SHM 64

struct shm_plan {
    const struct voxel_model_info *info;
    struct request_tensors *tensors; /* moved into the region */
    const char *output;              /* the one that is wanted; NULL = all */
    int64_t sets; /* places for the outputs of so many requests under way, in turn */
};

struct shm_request {
    struct voxel_region *region;
    struct voxel_place places[VOXEL_OUTPUTS_SHM]; /* of set 0 */
    struct voxel_place turn[VOXEL_OUTPUTS_SHM];   /* of the set asked for last */
    int32_t outputs_count;
    int64_t sets;
    size_t set_bytes;
};

enum voxel_code shm_request_open(struct voxel_client *client, const struct shm_plan *plan,
                                 struct shm_request *shm, struct voxel_error *error);
/* Valid until the next call. */
const struct voxel_place *shm_request_places(struct shm_request *shm, int64_t turn);
void shm_request_close(struct shm_request *shm);

#endif
