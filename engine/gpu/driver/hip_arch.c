/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/driver/hip_arch.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the kernel driver lists of one node; a processor's node has version 0. */
struct node {
    long long version, domain, location;
};

static bool node_read(const char *root, i32 index, struct node *node)
{
    char path[512], word[64];
    long long number = 0;
    *node = (struct node){0};
    int length =
        snprintf(path, sizeof path, "%s/sys/class/kfd/kfd/topology/nodes/%d/properties",
                 root, index);
    FILE *file = length < (int)sizeof path ? fopen(path, "re") : NULL;
    if (!file) return false;
    while (fscanf(file, "%63s %lld", word, &number) == 2) {
        if (!strcmp(word, "gfx_target_version")) node->version = number;
        if (!strcmp(word, "domain")) node->domain = number;
        if (!strcmp(word, "location_id")) node->location = number;
    }
    (void)fclose(file);
    return true;
}

/* Nodes are numbered without gaps, but a container may see only some of them. */
i32 vx_hip_arch_of_bus(const char *root, const char *bus)
{
    unsigned domain = 0, at = 0, slot = 0, function = 0;
    if (sscanf(bus, "%x:%x:%x.%x", &domain, &at, &slot, &function) < 3) return 0;
    /* Parts of one GPU have the same place; newer kernels count them in the four highest
     * bits. */
    const long long place = (long long)(at << 8 | slot << 3 | function);
    for (i32 i = 0; i < VX_HIP_NODES_MAX; i++) {
        struct node node;
        if (!node_read(root, i, &node) || node.version <= 0) continue;
        if (node.domain == (long long)domain && (node.location & 0xffff) == place)
            return (i32)node.version;
    }
    return 0;
}

i32 vx_hip_arch_of_all(const char *root)
{
    long long only = 0;
    for (i32 i = 0; i < VX_HIP_NODES_MAX; i++) {
        struct node node;
        if (!node_read(root, i, &node) || node.version <= 0) continue;
        if (only && only != node.version) return 0;
        only = node.version;
    }
    return (i32)only;
}

/* The last two digits are minor and stepping, in hex; what is before them is decimal. */
i32 vx_hip_arch_parse(const char *name)
{
    char digits[8], *end;
    if (strncmp(name, "gfx", 3) != 0) return 0;
    name += 3;
    size_t length = strspn(name, "0123456789abcdef");
    if (length < 3 || length >= sizeof digits) return 0;
    if (name[length] && name[length] != ':') return 0;
    memcpy(digits, name, length);
    digits[length] = 0;
    const long low = strtol(digits + length - 2, NULL, 16);
    digits[length - 2] = 0;
    const long major = strtol(digits, &end, 10);
    if (*end || major <= 0) return 0;
    return (i32)(major * 10000 + low / 16 * 100 + low % 16);
}

void vx_hip_arch_name(i32 version, char name[VX_ARCH_BYTES])
{
    (void)snprintf(name, VX_ARCH_BYTES, "gfx%d%x%x", version / 10000,
                   (unsigned)version / 100 % 100, (unsigned)version % 100);
}

i32 vx_hip_arch_wave(i32 version)
{
    return version >= 100000 ? 32 : 64;
}

/* The struct has 792 bytes in release 5 and 1472 in release 6; there is room for more. */
#define STRUCT_BYTES 16384

/* The first name is that of release 6 for its own layout. */
static const struct {
    const char *function;
    size_t name_at;
} layouts[] = {
    {"hipGetDevicePropertiesR0600", 1160},
    {"hipGetDeviceProperties", 396},
};

i32 vx_hip_arch_of_struct(void *library, int device)
{
    for (size_t i = 0; i < VX_COUNT(layouts); i++) {
        union {
            char bytes[STRUCT_BYTES];
            i64 aligned;
        } filled = {{0}};
        int (*fill)(void *properties, int device) = NULL;
        void *found = dlsym(library, layouts[i].function);
        if (!found) continue;
        memcpy(&fill, &found, sizeof fill); /* as in driver.c */
        if (fill(&filled, device)) return 0;
        char name[64] = "";
        memcpy(name, filled.bytes + layouts[i].name_at, sizeof name - 1);
        return vx_hip_arch_parse(name);
    }
    return 0;
}
