/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/clock.h"
#include "engine/base/process/print.h"
#include "engine/gpu/jit/hiprtc.h"
#include "tests/oracle/cases.h"

#include <string.h>

static const char usage[] =
    "oracle [--device cuda:0|hip:0|fake] [--only NAME] [--kernels all|untiled] [--seed "
    "N]\n"
    "       [--size full|small|big]\n"
    "       [--cache DIR] [--driver LIB] [--compiler FILE] [--texts DIR]\n"
    "\n"
    "Every kernel with every tile and type that the device runs, beside its reference.\n"
    "  --kernels  untiled: of numbers only those without tiles, in one type\n"
    "  --size   small: tiny shapes, for the sanitizers; big: one convolution beyond "
    "2^31\n"
    "           elements, nothing else; self: each kernel is broken in turn, on the "
    "fake, and\n"
    "           must be found\n";

struct options {
    struct vx_rig_wanted wanted;
    bool big, self;
};

static bool parse(int count, char **arguments, struct options *options)
{
    const char *size = "full", *kernels = "all";
    const struct vx_flag flags[] = {
        {"--device", &options->wanted.device.device},
        {"--cache", &options->wanted.device.cache},
        {"--driver", &options->wanted.device.driver},
        {"--compiler", &options->wanted.device.compiler},
        {"--texts", &options->wanted.device.texts},
        {"--only", &options->wanted.only},
        {"--seed", &options->wanted.seed},
        {"--size", &size},
        {"--kernels", &kernels},
    };
    if (count == 1 && !strcmp(arguments[0], "--help")) {
        vx_print("%s", usage);
        return false;
    }
    if (!vx_flags_parse(count, arguments, flags, VX_COUNT(flags))) return false;
    options->big = !strcmp(size, "big");
    options->self = !strcmp(size, "self");
    if (!strcmp(size, "small")) options->wanted.size = VX_RIG_SMALL;
    options->wanted.untiled = !strcmp(kernels, "untiled");
    if (!options->wanted.untiled && strcmp(kernels, "all") != 0) {
        vx_print_error("expected all or untiled as --kernels, got \"%s\"\n", kernels);
        return false;
    }
    if (options->big || options->self || !strcmp(size, "small") || !strcmp(size, "full"))
        return true;
    vx_print_error("expected full, small, big or self as --size, got \"%s\"\n", size);
    return false;
}

void vx_cases_run(struct vx_rig *rig)
{
    static const struct {
        const char *name;
        void (*run)(struct vx_rig *rig);
    } areas[] = {
        {"hash", vx_cases_hash},
        {"brick", vx_cases_brick},
        {"map", vx_cases_map},
        {"sets", vx_cases_levels},
        {"level maps", vx_cases_level_map},
        {"ranks", vx_cases_ranks},
        {"occupancy", vx_cases_occupancy},
        {"live", vx_cases_live},
        {"levels", vx_cases_level_rounds},
        {"join", vx_cases_join},
        {"order", vx_cases_order},
        {"orders", vx_cases_orders},
        {"pointwise", vx_cases_pointwise},
        {"parts", vx_cases_parts},
        {"windows", vx_cases_windows},
        {"points", vx_cases_points},
        {"samples", vx_cases_samples},
        {"dense", vx_cases_dense},
        {"convolution", vx_cases_conv},
        {"left out", vx_cases_left_out},
        {"mlp", vx_cases_mlp},
    };
    for (size_t area = 0; area < VX_COUNT(areas); area++) {
        i64 begin = vx_clock_ns(), trials = rig->trials, failures = rig->failures;
        areas[area].run(rig);
        if (rig->quiet || rig->trials == trials) continue;
        vx_print("%-12s %6lld trials, %lld wrong, %.1f s\n", areas[area].name,
                 (long long)(rig->trials - trials), (long long)(rig->failures - failures),
                 (f64)(vx_clock_ns() - begin) / 1e9);
    }
    if (!rig->quiet) vx_rig_check_ran(rig);
}

int main(int argc, char **argv)
{
    struct options options = {.wanted = {.size = VX_RIG_FULL}};
    struct vx_why why = {""};
    struct vx_rig *rig;
    bool done = true;
    if (vx_rig_is_compiler(argc, argv)) return vx_hiprtc_main(argc - 2, argv + 2);
    if (!parse(argc - 1, argv + 1, &options)) return 2;
    if (options.self) return vx_cases_self(&options.wanted) ? 1 : 0;
    vx_status status = vx_rig_open(&options.wanted, &why, &rig);
    if (status.fault) return vx_rig_absent("oracle", &options.wanted, status, &why);
    i64 begin = vx_clock_ns();
    status = vx_rig_ready(rig, &why);
    if (status.fault) {
        vx_print("FAIL oracle: %s\n", vx_status_text(status, &why));
        vx_rig_close(&rig);
        return 1;
    }
    vx_print("%d binaries ready in %.1f s\n", rig->kernels_count,
             (f64)(vx_clock_ns() - begin) / 1e9);
    if (options.big)
        done = vx_cases_big(rig);
    else
        vx_cases_run(rig);
    i64 failures = rig->failures;
    if (done)
        vx_print("%s: %lld trials, %lld wrong, seed %llu\n", failures ? "FAIL" : "passed",
                 (long long)rig->trials, (long long)failures,
                 (unsigned long long)rig->seed);
    vx_rig_close(&rig);
    if (failures) return 1;
    return done ? 0 : VX_RIG_SKIPPED;
}
