/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/check.h"
#include "engine/base/process/print.h"
#include "engine/gpu/fake/fake.h"
#include "tests/oracle/cases.h"

#include <string.h>

#define ARGS_MAX 512

/* The ways in which a kernel of the fake is broken. */
enum broken { DOES_NOTHING, FORGETS_ONE, KINDS };

/* The spec that the fake uses in place of a kernel's: the same but for its reference. */
static struct vx_kernel_spec fake_spec;
static const struct vx_kernel_spec *true_spec;

static void ref_nothing(const void *args, enum vx_number type)
{
    (void)args;
    (void)type;
}

/* Every argument struct begins with the number of rows (a gather's, with the first row):
 * this passes one row fewer. */
static void ref_forgets_one(const void *args, enum vx_number type)
{
    _Alignas(16) u8 copy[ARGS_MAX];
    i64 rows;
    VX_ASSERT(true_spec->args_bytes <= sizeof copy);
    memcpy(copy, args, true_spec->args_bytes);
    memcpy(&rows, copy, sizeof rows);
    rows -= rows > 0;
    memcpy(copy, &rows, sizeof rows);
    true_spec->ref(copy, type);
}

static const struct vx_kernel_spec *find(const char *name)
{
    return strcmp(name, true_spec->name) ? vx_kernel_find(name) : &fake_spec;
}

/* References that work by bricks or by pairs never read the number of rows. */
static bool harmless(enum broken broken, const char *name)
{
    static const char *const names[] = {"brick_number", "brick_map_far", "brick_map",
                                        "conv_pairs"};
    for (size_t i = 0; broken == FORGETS_ONE && i < VX_COUNT(names); i++)
        if (!strcmp(names[i], name)) return true;
    return false;
}

static bool found(const struct vx_rig_wanted *wanted, const struct vx_kernel_spec *spec,
                  enum broken broken)
{
    const struct vx_fake_settings settings = {.find = find};
    struct vx_rig_wanted one = *wanted;
    struct vx_why why = {""};
    struct vx_rig *rig;
    true_spec = spec;
    fake_spec = *spec;
    fake_spec.ref = broken == DOES_NOTHING ? ref_nothing : ref_forgets_one;
    one.device.device = "fake";
    one.only = spec->name;
    one.size = VX_RIG_SMALL;
    one.quiet = true;
    vx_fake_set(&settings);
    vx_status status = vx_rig_open(&one, &why, &rig);
    VX_ASSERT(!status.fault);
    vx_rig_need(rig, vx_rig_ready(rig, &why), &why);
    vx_cases_run(rig);
    bool wrong = rig->failures > 0;
    vx_rig_close(&rig);
    vx_fake_set(&(struct vx_fake_settings){0});
    return wrong;
}

i32 vx_cases_self(const struct vx_rig_wanted *wanted)
{
    static const char *const words[KINDS] = {"does nothing", "forgets a row"};
    i32 broken_count = 0, missed = 0;
    for (const struct vx_kernel_spec *const *at = vx_kernels(); *at; at++)
        for (i32 broken = 0; broken < KINDS; broken++) {
            if (harmless((enum broken)broken, (*at)->name)) continue;
            broken_count++;
            if (found(wanted, *at, (enum broken)broken)) continue;
            missed++;
            vx_print("FAIL nobody saw that %s %s\n", (*at)->name, words[broken]);
        }
    vx_print("%s: %d broken kernels, %d not seen\n", missed ? "FAIL" : "passed",
             broken_count, missed);
    return missed;
}
