/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/02_neighbor_map_device.h"
#include "tests/oracle/cases.h"
#include "tests/oracle/clouds.h"

#include <string.h>

static void table_make(struct vx_rig *rig, i64 n, i32 key_bits,
                       struct vx_hash_table *table)
{
    const size_t key = (size_t)key_bits / 8;
    u64 slots = 16;
    while (slots < 2 * (u64)n) slots *= 2;
    *table = (struct vx_hash_table){.key_bits = key_bits, .slots_count = slots};
    table->slots_key = vx_rig_take(rig, slots * key);
    table->slots_row = vx_rig_take(rig, slots * sizeof(i32));
    memset(table->slots_key, 0xff, slots * key);
}

/* The box of 32-bit keys; false = the cloud does not fit in one. */
static bool table_box(const struct vx_cloud *cloud, struct vx_hash_table *table)
{
    i64 places = 1;
    for (int axis = 0; axis < 4; axis++) {
        i64 least = INT32_MAX, most = INT32_MIN;
        for (i64 i = 0; i < cloud->n; i++) {
            i32 at[4];
            vx_hash_voxel(cloud->coords, cloud->columns, i, at);
            if (at[axis] < least) least = at[axis];
            if (at[axis] > most) most = at[axis];
        }
        if (!cloud->n) least = most = 0;
        table->least[axis] = (i32)least;
        table->size[axis] = (i32)(most - least + 1);
        places *= most - least + 1;
        if (places >= UINT32_MAX) return false;
    }
    return true;
}

/* Every voxel is found where it is, and nothing else is in the table. */
static void table_check(struct vx_rig *rig, const struct vx_trial *trial,
                        const struct vx_cloud *cloud, const struct vx_hash_table *table)
{
    i64 taken = 0;
    for (u64 slot = 0; slot < table->slots_count; slot++)
        taken += vx_hash_slot(table, slot) != VX_KEY_EMPTY;
    if (taken != cloud->n)
        vx_rig_fail(rig, "hash_insert, %s: expected %lld slots taken, got %lld",
                    trial->label, (long long)cloud->n, (long long)taken);
    for (i64 i = 0; i < cloud->n; i++) {
        i32 at[4];
        vx_hash_voxel(cloud->coords, cloud->columns, i, at);
        i32 found = taken == cloud->n ? vx_hash_find(table, at) : (i32)i;
        if (found == i) continue;
        vx_rig_fail(rig, "hash_insert, %s: expected row %lld to be found, got %d",
                    trial->label, (long long)i, found);
        return;
    }
}

static void insert_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                        const struct vx_cloud *cloud, u32 faults)
{
    struct vx_hash_insert_args args = {.n = cloud->n, .columns = cloud->columns};
    struct vx_trial trial;
    table_make(rig, cloud->n, kernel->tile->values[0], &args.table);
    if (args.table.key_bits == 32 && !table_box(cloud, &args.table)) return;
    const size_t slots = args.table.slots_count;
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "%s N=%lld", cloud->name, (long long)cloud->n);
    vx_trial_in(&trial, &args.coords, cloud->coords,
                (size_t)(cloud->n * cloud->columns) * sizeof(i32));
    struct vx_field *keys =
        vx_trial_both(&trial, &args.table.slots_key, args.table.slots_key,
                      slots * (size_t)args.table.key_bits / 8);
    struct vx_field *rows = vx_trial_both(&trial, &args.table.slots_row,
                                          args.table.slots_row, slots * sizeof(i32));
    keys->kind = rows->kind = VX_FIELD_MINE;
    struct vx_field *fault =
        vx_trial_both(&trial, &args.fault, vx_rig_take(rig, 8), 2 * sizeof(u32));
    if (!vx_trial_run(rig, &trial)) return;
    u32 raised[2];
    memcpy(raised, fault->back, sizeof raised);
    if ((raised[0] != 0) != (faults & 1u) || (raised[1] != 0) != (faults >> 1 & 1u))
        vx_rig_fail(rig, "hash_insert, %s: faults %u %u", trial.label, raised[0],
                    raised[1]);
    struct vx_hash_table table = args.table;
    table.slots_key = keys->back;
    table.slots_row = rows->back;
    if (!faults && cloud->n) table_check(rig, &trial, cloud, &table);
}

static void map_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                     const struct vx_cloud *cloud, const i32 size[3], i32 dilation)
{
    struct vx_hash_map_args args = {.n = cloud->n,
                                    .columns = cloud->columns,
                                    .kernel = {size[0], size[1], size[2]},
                                    .dilation = {dilation, dilation, 1},
                                    .v = size[0] * size[1] * size[2],
                                    .blocks = 5};
    struct vx_hash_insert_args insert = {
        .n = cloud->n, .columns = cloud->columns, .coords = cloud->coords};
    struct vx_trial trial;
    args.words = (args.v + 31) / 32;
    args.nbr_stride = (args.v + 3) / 4 * 4;
    table_make(rig, cloud->n, kernel->tile->values[0], &insert.table);
    if (insert.table.key_bits == 32 && !table_box(cloud, &insert.table)) return;
    insert.fault = vx_rig_take(rig, 8);
    vx_hash_insert_ref(&insert);
    args.table = insert.table;
    const size_t slots = args.table.slots_count, n = (size_t)cloud->n;
    const size_t nbr_bytes = n * (size_t)args.nbr_stride * sizeof(i32);
    i32 *nbr = vx_rig_take(rig, nbr_bytes);
    memset(nbr, 0xff, nbr_bytes);
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "%s N=%lld V=%d dilation %d", cloud->name, (long long)n,
                   args.v, dilation);
    vx_trial_in(&trial, &args.coords, cloud->coords,
                n * (size_t)cloud->columns * sizeof(i32));
    vx_trial_in(&trial, &args.table.slots_key, args.table.slots_key,
                slots * (size_t)args.table.key_bits / 8);
    vx_trial_in(&trial, &args.table.slots_row, args.table.slots_row, slots * sizeof(i32));
    vx_trial_both(&trial, &args.nbr, nbr, nbr_bytes);
    const size_t masks_bytes = n * (size_t)args.words * sizeof(u32);
    vx_trial_both(&trial, &args.masks, vx_rig_take(rig, masks_bytes), masks_bytes);
    vx_trial_both(&trial, &args.pairs, vx_rig_take(rig, 8), 8);
    vx_trial_run(rig, &trial);
}

/* A duplicate voxel, and coordinates just out of range: flags are set, nothing else is wrong. */
static void insert_faults(struct vx_rig *rig, const struct vx_jit_wanted *kernel)
{
    struct vx_cloud cloud;
    for (u32 faults = 1; faults < 4; faults++) {
        vx_cloud_make(rig, VX_CLOUD_RANDOM, 600, &cloud);
        cloud.name = faults == 1 ? "out of range" : faults == 2 ? "twice" : "both faults";
        if (faults & 2u) memcpy(cloud.coords, cloud.coords + 4 * 599, 4 * sizeof(i32));
        if (faults & 1u) cloud.coords[4 * 300 + 1 + faults % 3] = 1 << 17;
        /* With 32-bit keys the box itself is the range: nothing in it is out of range. */
        bool box = kernel->tile->values[0] == 32;
        insert_case(rig, kernel, &cloud, box ? faults & 2u : faults);
        vx_rig_reset(rig);
    }
}

void vx_cases_hash(struct vx_rig *rig)
{
    static const i64 sizes[] = {0, 1, 31, 256, 257, 1000, 10007};
    static const i32 kernels[][3] = {
        {1, 1, 1}, {3, 3, 3}, {5, 5, 5}, {7, 7, 7}, {1, 3, 5}};
    const struct vx_jit_wanted *kernel = NULL;
    const i64 sizes_count = rig->size == VX_RIG_FULL   ? 7
                            : rig->size == VX_RIG_FAKE ? 6
                                                       : 4;
    struct vx_cloud cloud;
    while ((kernel = vx_rig_next(rig, "hash_insert", kernel))) {
        for (i32 kind = 0; kind < VX_CLOUD_KINDS; kind++)
            for (i64 size = 0; size < sizes_count; size++) {
                vx_cloud_make(rig, (enum vx_cloud_kind)kind, sizes[size], &cloud);
                insert_case(rig, kernel, &cloud, 0);
                vx_rig_reset(rig);
            }
        insert_faults(rig, kernel);
    }
    while ((kernel = vx_rig_next(rig, "hash_map", kernel)))
        for (i32 kind = 0; kind < VX_CLOUD_KINDS; kind++)
            for (i64 size = 0; size < sizes_count; size++)
                for (size_t k = 0; k < VX_COUNT(kernels); k++) {
                    if (sizes[size] > 300 && k != (size_t)kind % VX_COUNT(kernels) &&
                        k != 1)
                        continue;
                    vx_cloud_make(rig, (enum vx_cloud_kind)kind, sizes[size], &cloud);
                    if (kind == VX_CLOUD_BLOCK) vx_cloud_narrow(rig, &cloud);
                    map_case(rig, kernel, &cloud, kernels[k], 1 + (i32)(size % 2));
                    vx_rig_reset(rig);
                }
}
