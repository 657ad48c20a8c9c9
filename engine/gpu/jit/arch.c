/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/jit/jit.h"

#include <string.h>

/* The data-sheet values of one well-known device of each architecture, for choices that
 * are made without a device.  An open device reports its own values. */
static const struct {
    const char *arch;
    struct vx_caps caps;
} rows[] = {
    /* T4: NVIDIA's data sheet (2018): 40 processors, boost 1590 MHz, 16 GB. */
    {"sm_75",
     {.arch = 75,
      .processors = 40,
      .shared_block = 64 << 10,
      .shared_processor = 64 << 10,
      .clock_mhz = 1590,
      .cache_bytes = INT64_C(4) << 20,
      .memory_bytes = INT64_C(16) << 30}},
    /* A100 80 GB */
    {"sm_80",
     {.arch = 80,
      .processors = 108,
      .shared_block = 163 << 10,
      .shared_processor = 164 << 10,
      .clock_mhz = 1410,
      .cache_bytes = INT64_C(40) << 20,
      .memory_bytes = INT64_C(80) << 30}},
    /* RTX A6000 */
    {"sm_86",
     {.arch = 86,
      .processors = 84,
      .shared_block = 99 << 10,
      .shared_processor = 100 << 10,
      .clock_mhz = 1800,
      .cache_bytes = INT64_C(6) << 20,
      .memory_bytes = INT64_C(48) << 30}},
    /* Jetson AGX Orin 64 GB: NVIDIA's data sheet (2022): 2048 cores at 1300 MHz; its memory
     * is the host's too. */
    {"sm_87",
     {.arch = 87,
      .processors = 16,
      .shared_block = 163 << 10,
      .shared_processor = 164 << 10,
      .clock_mhz = 1300,
      .cache_bytes = INT64_C(4) << 20,
      .memory_bytes = INT64_C(64) << 30}},
    /* L40S */
    {"sm_89",
     {.arch = 89,
      .processors = 142,
      .shared_block = 99 << 10,
      .shared_processor = 100 << 10,
      .clock_mhz = 2520,
      .cache_bytes = INT64_C(96) << 20,
      .memory_bytes = INT64_C(48) << 30}},
    /* H200 */
    {"sm_90a",
     {.arch = 90,
      .processors = 132,
      .shared_block = 227 << 10,
      .shared_processor = 228 << 10,
      .clock_mhz = 1980,
      .cache_bytes = INT64_C(50) << 20,
      .memory_bytes = INT64_C(140) << 30}},
    /* B200 */
    {"sm_100",
     {.arch = 100,
      .processors = 148,
      .shared_block = 227 << 10,
      .shared_processor = 228 << 10,
      .clock_mhz = 1965,
      .cache_bytes = INT64_C(126) << 20,
      .memory_bytes = INT64_C(180) << 30}},
    /* RTX 5090: NVIDIA's RTX Blackwell architecture paper (2025) */
    {"sm_120",
     {.arch = 120,
      .processors = 170,
      .shared_block = 99 << 10,
      .shared_processor = 100 << 10,
      .clock_mhz = 2407,
      .cache_bytes = INT64_C(96) << 20,
      .memory_bytes = INT64_C(32) << 30}},
    /* One of the two dies of an MI250X, which is a device of its own: AMD's data sheet
     * (2021) and CDNA 2 white paper: 220 CUs, 128 GB and 16 MB of L2 in all, 1700 MHz. */
    {"gfx90a",
     {.arch = 90010,
      .processors = 110,
      .shared_block = 64 << 10,
      .shared_processor = 64 << 10,
      .clock_mhz = 1700,
      .cache_bytes = INT64_C(8) << 20,
      .memory_bytes = INT64_C(64) << 30}},
    /* MI300X: AMD's data sheet (2023): 304 CUs, 2100 MHz, 256 MB of Infinity Cache, which
     * is the last level; 192 GB. */
    {"gfx942",
     {.arch = 90402,
      .processors = 304,
      .shared_block = 64 << 10,
      .shared_processor = 64 << 10,
      .clock_mhz = 2100,
      .cache_bytes = INT64_C(256) << 20,
      .memory_bytes = INT64_C(192) << 30}},
    /* RX 7900 XTX: AMD's product page: 96 CUs, boost 2500 MHz, 96 MB of Infinity Cache,
     * 24 GB. */
    {"gfx1100",
     {.arch = 110000,
      .processors = 96,
      .shared_block = 64 << 10,
      .shared_processor = 64 << 10,
      .clock_mhz = 2500,
      .cache_bytes = INT64_C(96) << 20,
      .memory_bytes = INT64_C(24) << 30}},
    /* RX 9060 XT, the card with 16 GB: AMD's product page: 32 CUs, boost 3130 MHz, 32 MB
     * of Infinity Cache. */
    {"gfx1200",
     {.arch = 120000,
      .processors = 32,
      .shared_block = 64 << 10,
      .shared_processor = 64 << 10,
      .clock_mhz = 3130,
      .cache_bytes = INT64_C(32) << 20,
      .memory_bytes = INT64_C(16) << 30}},
    /* The fake device has the shared memory of an H200, so that every tile fits, but only
     * 4 GiB of memory. */
    {"fake",
     {.arch = 90,
      .processors = 4,
      .shared_block = 227 << 10,
      .shared_processor = 228 << 10,
      .clock_mhz = 1000,
      .cache_bytes = INT64_C(1) << 20,
      .memory_bytes = INT64_C(4) << 30}},
};

const struct vx_caps *vx_arch_caps(const char *arch)
{
    for (size_t i = 0; i < VX_COUNT(rows); i++)
        if (!strcmp(rows[i].arch, arch)) return &rows[i].caps;
    return NULL;
}

const char *vx_arch_names(void)
{
    return "sm_75, sm_80, sm_86, sm_87, sm_89, sm_90a, sm_100, sm_120, gfx90a, gfx942, "
           "gfx1100 or gfx1200";
}
