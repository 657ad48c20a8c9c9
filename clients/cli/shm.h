/* shm - puts the tensors of a request into shared memory, for the option --shm.
 *
 *   struct shm_request shm;
 *   const struct shm_plan plan = {.info = info, .tensors = &tensors, .sets = 4};
 *   if (shm_request_open(client, &plan, &shm, &error)) ...
 *   request.places = shm_request_places(&shm, turn++);
 *   request.places_count = shm.outputs_count;
 *   shm_request_close(&shm);
 *
 * Owner    the caller closes it before the client.  After shm_request_open the tensors
 *          point into its region.
 * Thread   one.
 * Limits   VOXEL_OUTPUTS_SHM outputs; the server's on regions.
 * Fails    with the error of voxel_region_open; UNIMPLEMENTED for an output whose size
 *          the metadata does not tell, RESOURCE_EXHAUSTED for sets too large.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_SHM_H
#define VOXEL_CLIENTS_CLI_SHM_H

#include "clients/cli/commands.h"

#define VOXEL_OUTPUTS_SHM 64

struct shm_plan {
    const struct voxel_model_info *info;
    struct request_tensors *tensors; /* copied into the region */
    const char *output;              /* the only output wanted; NULL = all */
    int64_t sets;                    /* of places; requests under way use them in turn */
};

struct shm_request {
    struct voxel_region *region;
    struct voxel_place places[VOXEL_OUTPUTS_SHM]; /* of set 0 */
    struct voxel_place turn[VOXEL_OUTPUTS_SHM];   /* of the set that was returned last */
    int32_t outputs_count;
    int64_t sets;
    size_t set_bytes;
};

enum voxel_code shm_request_open(struct voxel_client *client, const struct shm_plan *plan,
                                 struct shm_request *shm, struct voxel_error *error);
/* The places of set turn % sets; valid until the next call. */
const struct voxel_place *shm_request_places(struct shm_request *shm, int64_t turn);
void shm_request_close(struct shm_request *shm);

#endif
