/* The shared memory methods: their answers are those that stock clients know from Triton.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "proto/control.h"
#include "server/control/control.h"
#include "server/rpc/rpc.h"
#include "tests/unit/server/regions/regions_rig.h"

#include "open_inference.pb-c.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES (4 << 20)

static struct vx_front_view view;
static struct vx_arena scratch;
static void *scratch_block;
static u8 answer_bytes[VX_ANSWER_BYTES_MAX];
static struct vx_why why;
static const char *said; /* the sentence of the last error */
static u64 connection = 1;
static int waiter;
static bool later, waits = true;

static void setup(void)
{
    rig_set_up("unix");
    scratch_block = malloc(ARENA_BYTES);
    vx_arena_init(&scratch, scratch_block, ARENA_BYTES);
    view = (struct vx_front_view){.config = &rig_config, .regions = rig_regions};
}

static void teardown(void)
{
    vx_arena_reset(&scratch);
    free(scratch_block);
    rig_tear_down();
}

static enum vx_code ask(i32 method, const ProtobufCMessage *request,
                        const ProtobufCMessageDescriptor *descriptor, void *answer)
{
    u8 bytes[4096];
    ck_assert_uint_le(protobuf_c_message_get_packed_size(request), sizeof bytes);
    struct vx_span span = {bytes, protobuf_c_message_pack(request, bytes)};
    struct vx_peer peer = rig_peer(connection);
    struct vx_control_answer out = {.scratch = &scratch,
                                    .bytes = answer_bytes,
                                    .capacity = sizeof answer_bytes,
                                    .peer = connection ? &peer : NULL,
                                    .waiter = waits ? &waiter : NULL};
    why.text[0] = '\0';
    vx_arena_reset(&scratch);
    vx_status status = vx_control_answer(&view, method, span, &out, &why);
    said = vx_status_text(status, &why);
    if (status.fault) return vx_status_code(status);
    later = out.later;
    if (later || !descriptor) return VX_CODE_OK;
    ProtobufCMessage *message = NULL;
    status = vx_control_unpack(descriptor, (struct vx_span){answer_bytes, out.length},
                               &scratch, &why, &message);
    ck_assert_msg(!status.fault, "%s", vx_status_text(status, &why));
    memcpy(answer, &message, sizeof message);
    return VX_CODE_OK;
}

#define REQUEST(name_, NAME_)                                                            \
    Inference__##name_##Request request = INFERENCE__##NAME_##_REQUEST__INIT

static char *text_of(const char *text)
{
    return (char *)(uintptr_t)text;
}

static enum vx_code add_system(const char *name, const char *key, u64 offset, u64 bytes)
{
    REQUEST(SystemSharedMemoryRegister, SYSTEM_SHARED_MEMORY_REGISTER);
    request.name = text_of(name);
    request.key = text_of(key);
    request.offset = offset;
    request.byte_size = bytes;
    return ask(VX_METHOD_ID_SYSTEM_SHARED_MEMORY_REGISTER, &request.base, NULL, NULL);
}

static enum vx_code remove_system(const char *name)
{
    REQUEST(SystemSharedMemoryUnregister, SYSTEM_SHARED_MEMORY_UNREGISTER);
    request.name = text_of(name);
    return ask(VX_METHOD_ID_SYSTEM_SHARED_MEMORY_UNREGISTER, &request.base, NULL, NULL);
}

static Inference__SystemSharedMemoryStatusResponse *systems;
static enum vx_code list_system(const char *name)
{
    REQUEST(SystemSharedMemoryStatus, SYSTEM_SHARED_MEMORY_STATUS);
    request.name = text_of(name);
    return ask(VX_METHOD_ID_SYSTEM_SHARED_MEMORY_STATUS, &request.base,
               &inference__system_shared_memory_status_response__descriptor, &systems);
}

static enum vx_code add_device(const char *name, size_t handle_bytes, i64 device)
{
    static u8 handle[100] = "a handle";
    REQUEST(CudaSharedMemoryRegister, CUDA_SHARED_MEMORY_REGISTER);
    request.name = text_of(name);
    request.raw_handle = (ProtobufCBinaryData){handle_bytes, handle};
    request.device_id = device;
    request.byte_size = 4096;
    return ask(VX_METHOD_ID_CUDA_SHARED_MEMORY_REGISTER, &request.base, NULL, NULL);
}

static enum vx_code remove_device(const char *name)
{
    REQUEST(CudaSharedMemoryUnregister, CUDA_SHARED_MEMORY_UNREGISTER);
    request.name = text_of(name);
    return ask(VX_METHOD_ID_CUDA_SHARED_MEMORY_UNREGISTER, &request.base, NULL, NULL);
}

static Inference__CudaSharedMemoryStatusResponse *devices;
static enum vx_code list_device(const char *name)
{
    REQUEST(CudaSharedMemoryStatus, CUDA_SHARED_MEMORY_STATUS);
    request.name = text_of(name);
    return ask(VX_METHOD_ID_CUDA_SHARED_MEMORY_STATUS, &request.base,
               &inference__cuda_shared_memory_status_response__descriptor, &devices);
}

START_TEST(system_regions_come_are_listed_and_go)
{
    char key[64];
    snprintf(key, sizeof key, "/%s", rig_object("r", 1000));
    ck_assert_int_eq(list_system(""), VX_CODE_OK);
    ck_assert_uint_eq(systems->n_regions, 0);
    ck_assert_int_eq(add_system("in", key, 0, 500), VX_CODE_OK);
    ck_assert_int_eq(add_system("out", key + 1, 500, 400), VX_CODE_OK);
    ck_assert_int_eq(add_system("in", key, 0, 500), VX_CODE_ALREADY_EXISTS);
    ck_assert_str_eq(said, "shared memory region 'in' already in manager");
    ck_assert_int_eq(list_system(""), VX_CODE_OK);
    ck_assert_uint_eq(systems->n_regions, 2);
    ck_assert_str_eq(systems->regions[0]->key, "in");
    ck_assert_str_eq(systems->regions[0]->value->key, key);
    ck_assert_int_eq(list_system("out"), VX_CODE_OK);
    ck_assert_uint_eq(systems->n_regions, 1);
    ck_assert_str_eq(systems->regions[0]->key, "out");
    ck_assert_str_eq(systems->regions[0]->value->name, "out");
    ck_assert_str_eq(systems->regions[0]->value->key, key + 1);
    ck_assert_uint_eq(systems->regions[0]->value->offset, 500);
    ck_assert_uint_eq(systems->regions[0]->value->byte_size, 400);
    ck_assert_int_eq(list_system("none"), VX_CODE_NOT_FOUND);
    ck_assert_str_eq(said, "Unable to find system shared memory region: 'none'");
    ck_assert_int_eq(list_device(""), VX_CODE_OK); /* another kind of region */
    ck_assert_uint_eq(devices->n_regions, 0);
    ck_assert_int_eq(remove_system("none"), VX_CODE_OK);
    ck_assert_int_eq(remove_device(""), VX_CODE_OK);
    ck_assert_int_eq(remove_system("in"), VX_CODE_OK);
    ck_assert_int_eq(list_system("in"), VX_CODE_NOT_FOUND);
    ck_assert_int_eq(remove_system(""), VX_CODE_OK);
    ck_assert_int_eq(list_system(""), VX_CODE_OK);
    ck_assert_uint_eq(systems->n_regions, 0);
    rig_drop_object("r");
}
END_TEST

START_TEST(nobody_sees_what_is_anothers)
{
    const char *key = rig_object("r", 1000);
    ck_assert_int_eq(add_system("r", key, 0, 500), VX_CODE_OK);
    connection = 2;
    ck_assert_int_eq(list_system(""), VX_CODE_OK);
    ck_assert_uint_eq(systems->n_regions, 0);
    ck_assert_int_eq(list_system("r"), VX_CODE_NOT_FOUND);
    ck_assert_int_eq(remove_system("r"), VX_CODE_OK);
    ck_assert_int_eq(remove_system(""), VX_CODE_OK);
    connection = 0; /* an unknown client */
    ck_assert_int_eq(add_system("s", key, 0, 500), VX_CODE_PERMISSION_DENIED);
    ck_assert_int_eq(list_system(""), VX_CODE_OK);
    ck_assert_uint_eq(systems->n_regions, 0);
    connection = 1;
    ck_assert_int_eq(list_system("r"), VX_CODE_OK);
    rig_drop_object("r");
}
END_TEST

START_TEST(as_many_as_one_may_have_are_listed)
{
    char name[VX_WIRE_NAME_BYTES];
    const char *key = rig_object("r", 1000);
    memset(name, 'n', sizeof name);
    for (i32 i = 0; i < VX_REGIONS_OWNER_MAX; i++) {
        snprintf(name + sizeof name - 4, 4, "%03d", i);
        ck_assert_int_eq(add_system(name, key, 0, 1), VX_CODE_OK);
    }
    ck_assert_int_eq(list_system(""), VX_CODE_OK);
    ck_assert_uint_eq(systems->n_regions, VX_REGIONS_OWNER_MAX);
    rig_drop_object("r");
}
END_TEST

START_TEST(device_regions_are_answered_later)
{
    static const size_t sizes[] = {0, 1, 63, 65, 100};
    for (size_t i = 0; i < VX_COUNT(sizes); i++)
        ck_assert_int_eq(add_device("d", sizes[i], 1), VX_CODE_INVALID_ARGUMENT);
    ck_assert_int_eq(add_device("d", 64, 7), VX_CODE_INVALID_ARGUMENT);
    waits = false;
    ck_assert_int_eq(add_device("d", 64, 1), VX_CODE_UNAVAILABLE);
    waits = true;
    ck_assert_int_eq(rig_told_count, 0);
    ck_assert_int_eq(add_device("d", 64, 1), VX_CODE_OK);
    ck_assert(later);
    ck_assert_int_eq(list_device("d"), VX_CODE_NOT_FOUND);
    ck_assert_str_eq(said, "Unable to find cuda shared memory region: 'd'");
    rig_mapped(&rig_told[0], VX_CODE_OK);
    ck_assert_ptr_eq(rig_waiter, &waiter);
    ck_assert_int_eq(list_device(""), VX_CODE_OK);
    ck_assert_uint_eq(devices->n_regions, 1);
    ck_assert_str_eq(devices->regions[0]->key, "d");
    ck_assert_uint_eq(devices->regions[0]->value->device_id, 1);
    ck_assert_uint_eq(devices->regions[0]->value->byte_size, 4096);
    ck_assert_int_eq(remove_system(""), VX_CODE_OK);
    ck_assert_int_eq(list_device("d"), VX_CODE_OK);
    ck_assert_int_eq(remove_device("d"), VX_CODE_OK);
    ck_assert_int_eq(list_device("d"), VX_CODE_NOT_FOUND);
}
END_TEST

static void serve(const char *client_shm)
{
    snprintf(rig_config.client_shm, sizeof rig_config.client_shm, "%s", client_shm);
    rig_open_on(NULL);
    view.regions = rig_regions;
}

/* The sentence names the method and the setting. */
START_TEST(what_is_not_served_says_so)
{
    serve("off");
    ck_assert_int_eq(list_system(""), VX_CODE_UNIMPLEMENTED);
    ck_assert_str_eq(
        said, "SystemSharedMemoryStatus is not available: the setting client_shm is off");
    ck_assert_int_eq(add_system("r", "/r", 0, 1), VX_CODE_UNIMPLEMENTED);
    ck_assert_int_eq(remove_system(""), VX_CODE_UNIMPLEMENTED);
    ck_assert_int_eq(list_device(""), VX_CODE_UNIMPLEMENTED);
    ck_assert_int_eq(add_device("d", 64, 1), VX_CODE_UNIMPLEMENTED);
    ck_assert_int_eq(remove_device(""), VX_CODE_UNIMPLEMENTED);
    view.regions = NULL;
    ck_assert_int_eq(list_system(""), VX_CODE_UNIMPLEMENTED);
    serve("unix");
    rig_infos[1].device = rig_infos[2].device = "cpu";
    ck_assert_int_eq(list_system(""), VX_CODE_OK);
    ck_assert_int_eq(add_device("d", 64, 1), VX_CODE_UNIMPLEMENTED);
    ck_assert_str_eq(
        said, "CudaSharedMemoryRegister is not available: no device of voxeld is a GPU");
}
END_TEST

static bool advertises(const char *name)
{
    Inference__ServerMetadataResponse *metadata;
    REQUEST(ServerMetadata, SERVER_METADATA);
    ck_assert_int_eq(ask(VX_METHOD_ID_SERVER_METADATA, &request.base,
                         &inference__server_metadata_response__descriptor, &metadata),
                     VX_CODE_OK);
    for (size_t i = 0; i < metadata->n_extensions; i++)
        if (!strcmp(metadata->extensions[i], name)) return true;
    return false;
}

START_TEST(metadata_advertises_it_where_it_is_served)
{
    ck_assert(advertises("system_shared_memory") && advertises("cuda_shared_memory"));
    rig_infos[1].device = rig_infos[2].device = "cpu";
    ck_assert(advertises("system_shared_memory") && !advertises("cuda_shared_memory"));
    serve("off");
    ck_assert(!advertises("system_shared_memory") && !advertises("cuda_shared_memory"));
    ck_assert(advertises("statistics"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("control_memory");
    TCase *tests = tcase_create("methods");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, system_regions_come_are_listed_and_go);
    tcase_add_test(tests, nobody_sees_what_is_anothers);
    tcase_add_test(tests, as_many_as_one_may_have_are_listed);
    tcase_add_test(tests, device_regions_are_answered_later);
    tcase_add_test(tests, what_is_not_served_says_so);
    tcase_add_test(tests, metadata_advertises_it_where_it_is_served);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
