/* AMD's driver without an AMD GPU: its library is a stand-in, the kernel driver's list is
 * a folder of texts.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/gpu/driver/gpu.h"
#include "engine/gpu/driver/hip_arch.h"
#include "tests/unit/engine/gpu/driver/stub_hip.h"

#include <check.h>
#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NODES "/sys/class/kfd/kfd/topology/nodes"

static struct stub_hip *stub;
static char root[64];
static struct vx_why why;
static struct vx_gpu *gpu;
static struct vx_gpu_options options;

/* --- a folder like the system's --- */

static void folder_make(const char *inside)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s%s", root, inside);
    for (char *at = path + strlen(root) + 1; *at; at++) {
        if (*at != '/') continue;
        *at = 0;
        (void)mkdir(path, 0700);
        *at = '/';
    }
    (void)mkdir(path, 0700);
}

static void file_write(const char *inside, const void *data, size_t bytes)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s%s", root, inside);
    FILE *file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(data, 1, bytes, file), bytes);
    ck_assert_int_eq(fclose(file), 0);
}

/* A node as the kernel driver lists it; version 0 is a processor's. */
static void node_write(int index, int version, int domain, int location)
{
    char name[128], text[256];
    (void)snprintf(name, sizeof name, NODES "/%d", index);
    folder_make(name);
    (void)snprintf(name, sizeof name, NODES "/%d/properties", index);
    int length =
        snprintf(text, sizeof text,
                 "cpu_cores_count %d\nsimd_count %d\nvendor_id 4098\n"
                 "location_id %d\ndomain %d\ngfx_target_version %d\n"
                 "unique_id 16912437389123456789\n",
                 version ? 0 : 32, version ? 1216 : 0, location, domain, version);
    file_write(name, text, (size_t)length);
}

static void setup(void)
{
    (void)snprintf(root, sizeof root, "/tmp/vx-hip-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    void *library = dlopen(STUB_HIP, RTLD_NOW | RTLD_LOCAL);
    ck_assert_ptr_nonnull(library);
    stub = dlsym(library, "stub_hip");
    ck_assert_ptr_nonnull(stub);
    *stub = (struct stub_hip){.version = 60300000 + 42134, .count = 2, .used = -1};
    memset(stub->attributes, 0xff, sizeof stub->attributes);
    stub->attributes[63] = 304;
    stub->attributes[23] = 9;
    stub->attributes[61] = 4;
    stub->attributes[74] = 64 << 10;
    stub->attributes[5] = 2100000;
    stub->attributes[19] = 4 << 20;
    stub->attributes[87] = 64;
    (void)snprintf(stub->bus, sizeof stub->bus, "0000:c1:00.0");
    options = (struct vx_gpu_options){VX_GPU_HIP, 0, STUB_HIP, root};
    gpu = NULL;
    why = (struct vx_why){""};
}

static void teardown(void)
{
    char command[128];
    vx_gpu_close(&gpu);
    (void)snprintf(command, sizeof command, "rm -rf '%s'", root);
    ck_assert_int_eq(system(command), 0);
}

static void ck_opens(void)
{
    vx_status status = vx_gpu_open(&options, &why, &gpu);
    if (status.fault) ck_abort_msg("%s", vx_status_text(status, &why));
}

static void ck_fails(enum vx_code code, const char *part)
{
    vx_status status = vx_gpu_open(&options, &why, &gpu);
    ck_assert_ptr_null(gpu);
    if (vx_status_code(status) != code || !strstr(why.text, part))
        ck_abort_msg("%s \"%s\": expected \"%s\"", vx_code_name(vx_status_code(status)),
                     why.text, part);
}

/* --- names --- */

static const struct {
    const char *said, *name;
    i32 version, wave;
} names[] = {
    {"gfx900", "gfx900", 90000, 64},    {"gfx90a:sramecc+:xnack-", "gfx90a", 90010, 64},
    {"gfx942", "gfx942", 90402, 64},    {"gfx1030", "gfx1030", 100300, 32},
    {"gfx1100", "gfx1100", 110000, 32}, {"gfx1201", "gfx1201", 120001, 32},
    {"gfx803", "gfx803", 80003, 64},
};

START_TEST(test_names)
{
    char name[VX_ARCH_BYTES];
    ck_assert_int_eq(vx_hip_arch_parse(names[_i].said), names[_i].version);
    vx_hip_arch_name(names[_i].version, name);
    ck_assert_str_eq(name, names[_i].name);
    ck_assert_int_eq(vx_hip_arch_wave(names[_i].version), names[_i].wave);
}
END_TEST

START_TEST(test_no_names)
{
    static const char *const bad[] = {"",       "gfx",        "gfx9",        "gfx90",
                                      "sm_90",  "gfx90a b",   "gfx90A",      "gfxa00",
                                      "gfx000", "gfx90a\xa5", "gfx12345678", "fx900"};
    for (size_t i = 0; i < VX_COUNT(bad); i++)
        ck_assert_msg(!vx_hip_arch_parse(bad[i]), "%s", bad[i]);
}
END_TEST

/* --- the kernel driver's list --- */

START_TEST(test_nodes)
{
    ck_assert_int_eq(vx_hip_arch_of_bus(root, "0000:c1:00.0"), 0);
    ck_assert_int_eq(vx_hip_arch_of_all(root), 0);
    node_write(0, 0, 0, 0);
    node_write(1, 90402, 0, 0xc100);
    ck_assert_int_eq(vx_hip_arch_of_all(root), 90402);
    node_write(2, 90402, 1, 0x4108);
    /* The third part of a GPU that is cut in parts. */
    node_write(3, 110000, 0, 0x20000300);
    node_write(7, 120000, 0, 0x0b00); /* a container sees some only */
    ck_assert_int_eq(vx_hip_arch_of_bus(root, "0000:c1:00.0"), 90402);
    ck_assert_int_eq(vx_hip_arch_of_bus(root, "0000:C1:00.0"), 90402);
    ck_assert_int_eq(vx_hip_arch_of_bus(root, "0001:41:01.0"), 90402);
    ck_assert_int_eq(vx_hip_arch_of_bus(root, "0000:03:00.0"), 110000);
    ck_assert_int_eq(vx_hip_arch_of_bus(root, "0000:0b:00.0"), 120000);
    /* Neither the processor's node nor another domain's. */
    ck_assert_int_eq(vx_hip_arch_of_bus(root, "0000:00:00.0"), 0);
    ck_assert_int_eq(vx_hip_arch_of_bus(root, "0002:c1:00.0"), 0);
    ck_assert_int_eq(vx_hip_arch_of_bus(root, "rubbish"), 0);
    ck_assert_int_eq(vx_hip_arch_of_all(root), 0);
}
END_TEST

/* --- a device --- */

START_TEST(test_open)
{
    char version[VX_VERSION_BYTES];
    void *memory;
    node_write(0, 0, 0, 0);
    node_write(1, 120000, 0, 0x0300);
    node_write(2, 90402, 0, 0xc100);
    ck_assert_int_eq(vx_gpu_count(&options, &why), 2);
    options.index = 1;
    ck_opens();
    ck_assert_str_eq(vx_gpu_arch(gpu), "gfx942");
    ck_assert_str_eq(vx_gpu_name(gpu), "AMD stub 1");
    ck_assert_int_eq(stub->used, 1);
    vx_gpu_driver_version_text(gpu, version);
    ck_assert_str_eq(version, "6.3");
    const struct vx_caps *caps = vx_gpu_caps(gpu);
    ck_assert_int_eq(caps->arch, 90402);
    ck_assert_int_eq(caps->processors, 304);
    ck_assert_int_eq(caps->shared_block, 64 << 10);
    ck_assert_int_eq(caps->shared_processor, 64 << 10);
    ck_assert_int_eq(caps->clock_mhz, 2100);
    ck_assert_int_eq(caps->cache_bytes, 4 << 20);
    ck_assert_int_eq(caps->memory_bytes, INT64_C(64) << 30);
    ck_assert_ptr_null(vx_gpu_alloc(gpu, 100, &why, &memory).fault);
    vx_gpu_free(gpu, &memory);
    vx_status status = vx_gpu_alloc(gpu, (size_t)1 << 40, &why, &memory);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_RESOURCE_EXHAUSTED);
    options.index = 2;
    vx_gpu_close(&gpu);
    ck_fails(VX_CODE_NOT_FOUND, "GPU 2 does not exist: the HIP driver has 2 devices");
}
END_TEST

/* An attribute that a release lacks is 0, not an error; one that is needed is. */
START_TEST(test_attributes)
{
    node_write(0, 90402, 0, 0xc100);
    stub->attributes[5] = stub->attributes[19] = stub->attributes[87] = -1;
    ck_opens();
    ck_assert_int_eq(vx_gpu_caps(gpu)->clock_mhz, 0);
    ck_assert_int_eq(vx_gpu_caps(gpu)->cache_bytes, 0);
    vx_gpu_close(&gpu);
    stub->attributes[74] = -1;
    ck_fails(VX_CODE_INTERNAL,
             "AMD stub 0: hipDeviceGetAttribute: HIP error 1 (an error of the stub)");
}
END_TEST

/* Without the kernel driver's list: the struct, if it agrees with major and minor. */
START_TEST(test_arch_otherwise)
{
    (void)snprintf(stub->arch, sizeof stub->arch, "gfx942:sramecc+:xnack-");
    ck_opens();
    ck_assert_str_eq(vx_gpu_arch(gpu), "gfx942");
    vx_gpu_close(&gpu);
    stub->attributes[61] = 0;
    ck_fails(VX_CODE_FAILED_PRECONDITION,
             "major 9, minor 0: its architecture is not in /tmp");
    memset(stub->arch, 0xa5, sizeof stub->arch); /* another layout */
    ck_fails(VX_CODE_FAILED_PRECONDITION, "major 9, minor 0");
    /* One kind of GPU is listed, at no known place. */
    node_write(0, 90010, 5, 0x0100);
    stub->struct_code = 1;
    ck_opens();
    ck_assert_str_eq(vx_gpu_arch(gpu), "gfx90a");
    vx_gpu_close(&gpu);
    stub->bus[0] = 0;
    ck_opens();
    vx_gpu_close(&gpu);
    node_write(1, 90402, 5, 0x0200);
    ck_fails(VX_CODE_FAILED_PRECONDITION, "major 9, minor 0");
}
END_TEST

START_TEST(test_not_supported)
{
    node_write(0, 80003, 0, 0xc100);
    ck_fails(VX_CODE_FAILED_PRECONDITION,
             "HIP device 0 is gfx803: expected gfx900 or newer");
    node_write(0, 110000, 0, 0xc100);
    ck_fails(VX_CODE_FAILED_PRECONDITION,
             "HIP device 0 is gfx1100 with waves of 64 lanes: expected 32");
    stub->version = 50100000 + 20531;
    ck_fails(VX_CODE_FAILED_PRECONDITION,
             "HIP driver: expected at least version 5.2, got 5.1");
    stub->version = 4;
    ck_fails(VX_CODE_FAILED_PRECONDITION, "expected at least version 5.2, got 0.0");
}
END_TEST

/* A runtime that finds no GPU says only a number: the device file tells more. */
START_TEST(test_no_device)
{
    stub->init = 100;
    ck_fails(VX_CODE_NOT_FOUND, "hipInit: HIP error 100");
    ck_assert_ptr_nonnull(strstr(why.text, "/dev/kfd: No such file or directory"));
    folder_make("/dev");
    file_write("/dev/kfd", "", 0);
    ck_fails(VX_CODE_NOT_FOUND, "hipInit: HIP error 100");
    ck_assert_ptr_null(strstr(why.text, "/dev/kfd"));
    stub->init = stub->count = 0;
    ck_assert_int_eq(vx_gpu_count(&options, &why), 0);
}
END_TEST

/* --- memory of another process --- */

static const struct {
    int version;
    unsigned flags;
} lazy[] = {{50221153, 0}, {60342134, 1}, {70051830, 1}};

START_TEST(test_import)
{
    const u8 handle[VX_GPU_IPC_BYTES] = "stub", bad[VX_GPU_IPC_BYTES] = "other";
    void *memory;
    node_write(0, 90402, 0, 0xc100);
    stub->version = lazy[_i].version;
    ck_opens();
    vx_status status = vx_gpu_import(gpu, handle, 4096, &why, &memory);
    ck_assert_msg(!status.fault, "%s", why.text);
    ck_assert_uint_eq(stub->ipc_flags, lazy[_i].flags);
    vx_gpu_release(gpu, &memory);
    status = vx_gpu_import(gpu, handle, 4097, &why, &memory);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(why.text, "has 4096 bytes: expected at least 4097"));
    status = vx_gpu_import(gpu, bad, 1, &why, &memory);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    stub->pointer_device = 1;
    status = vx_gpu_import(gpu, handle, 1, &why, &memory);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(why.text, "memory of another device"));
}
END_TEST

/* --- libraries that cannot be used --- */

static void library_write(u16 machine)
{
    static char path[128];
    Elf64_Ehdr head = {.e_type = ET_DYN, .e_machine = machine, .e_version = EV_CURRENT};
    memcpy(head.e_ident, ELFMAG, SELFMAG);
    head.e_ident[EI_CLASS] = ELFCLASS64;
    head.e_ident[EI_DATA] = ELFDATA2LSB;
    head.e_ident[EI_VERSION] = EV_CURRENT;
    file_write("/libamdhip64.so.6", &head, sizeof head);
    (void)snprintf(path, sizeof path, "%s/libamdhip64.so.6", root);
    options.library = path;
}

START_TEST(test_libraries)
{
    library_write(EM_S390);
    ck_fails(VX_CODE_NOT_FOUND,
             "libamdhip64.so.6 is a library for another machine (22), expected ");
    file_write("/libamdhip64.so.6", "not a library, but a text of some length\n", 41);
    ck_fails(VX_CODE_NOT_FOUND, "libamdhip64.so.6 is no ELF library");
    options.library = "/nowhere/libamdhip64.so";
    ck_fails(VX_CODE_NOT_FOUND,
             "/nowhere/libamdhip64.so: cannot open shared object file");
    ck_assert_int_eq(vx_gpu_count(&options, &why), 0);
    /* It is there, but a library that it needs is not. */
    options.library = STUB_HIP_HALF;
    ck_fails(VX_CODE_NOT_FOUND, "no HIP driver: libstub_hip_gone.so: cannot open");
    options.library = STUB_HIP_LACKS;
    ck_fails(VX_CODE_FAILED_PRECONDITION,
             "the HIP driver has no function hipModuleLaunchKernel");
    /* The other vendor's library in its place. */
    options.library = STUB_HIP;
    options.vendor = VX_GPU_CUDA;
    ck_fails(VX_CODE_FAILED_PRECONDITION, "the CUDA driver has no function cuInit");
}
END_TEST

/* What a machine without ROCm is told; skipped on one that has it. */
START_TEST(test_no_rocm)
{
    options.library = NULL;
    if (vx_gpu_count(&options, &why)) return;
    if (strstr(why.text, "none of")) {
        ck_assert_ptr_nonnull(
            strstr(why.text, "no HIP driver: none of libamdhip64.so.7"));
        ck_assert_ptr_nonnull(strstr(why.text, "/opt/rocm/lib/libamdhip64.so"));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_hip");
    TCase *tests = tcase_create("gpu_hip");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, test_names, 0, (int)VX_COUNT(names));
    tcase_add_test(tests, test_no_names);
    tcase_add_test(tests, test_nodes);
    tcase_add_test(tests, test_open);
    tcase_add_test(tests, test_attributes);
    tcase_add_test(tests, test_arch_otherwise);
    tcase_add_test(tests, test_not_supported);
    tcase_add_test(tests, test_no_device);
    tcase_add_loop_test(tests, test_import, 0, (int)VX_COUNT(lazy));
    tcase_add_test(tests, test_libraries);
    tcase_add_test(tests, test_no_rocm);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
