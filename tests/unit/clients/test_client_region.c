/* Regions of the C client against a small server inside the test that opens the objects
 * it is told of: the bytes of the messages as protobuf-c reads them, outputs that the
 * server writes itself, names that nobody can guess, and a thousand regions that leave no
 * descriptor, mapping or object.
 *
 * Every test starts gRPC itself, because Check forks for each test.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "clients/c/infer_wire.h"
#include "clients/c/memory.h"
#include "clients/c/region.h"

#include "open_inference.pb-c.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/time.h>

#define SERVICE       "/inference.GRPCInferenceService/"
#define BYTES         100000
#define OUTPUT_AT     65536
#define MESSAGE_BYTES 4096
#define REGIONS       1000

/* Output x, FP32 [2, 1], of which no byte is in the answer. */
#define ANSWER                                                                           \
    "\x2a\x0d\x0a\x01x\x12\x04"                                                          \
    "FP32"                                                                               \
    "\x1a\x02\x02\x01"                                                                   \
    "\x32\x00"

/* What the calls of a client left behind. */
struct calls {
    char method[128]; /* of the last one */
    uint8_t message[MESSAGE_BYTES];
    size_t message_bytes;
    int registered, unregistered;
    uint8_t *view; /* of the region registered last */
    size_t view_bytes;
    struct stat object;
};

/* libgrpc is not instrumented: ThreadSanitizer does not know that an answer comes after its
 * call and the next call after the answer.  So a lock guards `calls`, and a test looks at
 * its own copy. */
struct server {
    grpc_server *server;
    grpc_completion_queue *queue;
    pthread_t thread;
    atomic_bool refuse;
    pthread_mutex_t lock;
    struct calls calls;
};
static struct server server = {.lock = PTHREAD_MUTEX_INITIALIZER};
static struct calls seen;
static char address[64];

static void server_seen(void)
{
    pthread_mutex_lock(&server.lock);
    seen = server.calls;
    pthread_mutex_unlock(&server.lock);
}

static bool server_next(void)
{
    gpr_timespec never = gpr_inf_future(GPR_CLOCK_MONOTONIC);
    grpc_event event = grpc_completion_queue_next(server.queue, never, NULL);
    return event.type == GRPC_OP_COMPLETE && event.success;
}

/* As the daemon does: opens the object, keeps it mapped, and forgets its name. */
static void server_map(struct calls *calls)
{
    Inference__SystemSharedMemoryRegisterRequest *read =
        inference__system_shared_memory_register_request__unpack(
            NULL, calls->message_bytes, calls->message);
    ck_assert_ptr_nonnull(read);
    int fd = shm_open(read->key, O_RDWR, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fstat(fd, &calls->object), 0);
    ck_assert_uint_ge((uint64_t)calls->object.st_size, read->offset + read->byte_size);
    if (calls->view) munmap(calls->view, calls->view_bytes);
    calls->view_bytes = read->byte_size;
    calls->view = mmap(NULL, read->byte_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(calls->view, MAP_FAILED);
    close(fd);
    ck_assert_str_eq(read->name, read->key + 1);
    inference__system_shared_memory_register_request__free_unpacked(read, NULL);
}

/* What the call does here; returns the bytes of its answer. */
static const char *server_serve(struct calls *calls, size_t *bytes)
{
    *bytes = 0;
    if (strstr(calls->method, "Unregister")) calls->unregistered++;
    if (strstr(calls->method, "MemoryRegister")) calls->registered++;
    if (strstr(calls->method, "SystemSharedMemoryRegister") && !server.refuse)
        server_map(calls);
    if (!strstr(calls->method, "ModelInfer")) return "";
    memcpy(calls->view + OUTPUT_AT, calls->view, 8);
    *bytes = sizeof ANSWER - 1;
    return ANSWER;
}

static void server_answer(grpc_call *call, grpc_slice method, grpc_byte_buffer *message)
{
    grpc_byte_buffer_reader reader;
    ck_assert(grpc_byte_buffer_reader_init(&reader, message));
    grpc_slice all = grpc_byte_buffer_reader_readall(&reader);
    grpc_byte_buffer_reader_destroy(&reader);
    pthread_mutex_lock(&server.lock);
    struct calls *calls = &server.calls;
    snprintf(calls->method, sizeof calls->method, "%.*s", (int)GRPC_SLICE_LENGTH(method),
             (const char *)GRPC_SLICE_START_PTR(method));
    calls->message_bytes = GRPC_SLICE_LENGTH(all);
    ck_assert_uint_le(calls->message_bytes, sizeof calls->message);
    memcpy(calls->message, GRPC_SLICE_START_PTR(all), calls->message_bytes);
    grpc_slice_unref(all);
    size_t bytes;
    const char *answer = server_serve(calls, &bytes);
    pthread_mutex_unlock(&server.lock);
    grpc_slice slice = grpc_slice_from_copied_buffer(answer, bytes);
    grpc_byte_buffer *reply = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice details = grpc_slice_from_static_string("shared memory is not served");
    int cancelled;
    grpc_op ops[4] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},
        {.op = GRPC_OP_SEND_STATUS_FROM_SERVER,
         .data.send_status_from_server =
             {.status = server.refuse ? GRPC_STATUS_UNIMPLEMENTED : GRPC_STATUS_OK,
              .status_details = server.refuse ? &details : NULL}},
        {.op = GRPC_OP_RECV_CLOSE_ON_SERVER,
         .data.recv_close_on_server = {.cancelled = &cancelled}},
        {.op = GRPC_OP_SEND_MESSAGE, .data.send_message = {.send_message = reply}},
    };
    grpc_call_start_batch(call, ops, server.refuse ? 3 : 4, call, NULL);
    grpc_byte_buffer_destroy(reply);
    grpc_slice_unref(slice);
    server_next();
}

static void *server_main(void *context)
{
    (void)context;
    for (;;) {
        grpc_call *call = NULL;
        grpc_call_details details;
        grpc_metadata_array metadata;
        grpc_call_details_init(&details);
        grpc_metadata_array_init(&metadata);
        grpc_server_request_call(server.server, &call, &details, &metadata, server.queue,
                                 server.queue, &server);
        bool more = server_next();
        if (more) {
            grpc_byte_buffer *message = NULL;
            grpc_op receive = {.op = GRPC_OP_RECV_MESSAGE,
                               .data.recv_message = {.recv_message = &message}};
            grpc_call_start_batch(call, &receive, 1, call, NULL);
            server_next();
            server_answer(call, details.method, message);
            grpc_byte_buffer_destroy(message);
            grpc_call_unref(call);
        }
        grpc_call_details_destroy(&details);
        grpc_metadata_array_destroy(&metadata);
        if (!more) return NULL;
    }
}

static struct voxel_client *begin(void)
{
    struct voxel_client *client;
    grpc_init();
    server.server = grpc_server_create(NULL, NULL);
    server.queue = grpc_completion_queue_create_for_next(NULL);
    grpc_server_register_completion_queue(server.server, server.queue, NULL);
    grpc_server_credentials *plain = grpc_insecure_server_credentials_create();
    int port = grpc_server_add_http2_port(server.server, "127.0.0.1:0", plain);
    grpc_server_credentials_release(plain);
    ck_assert_int_ne(port, 0);
    grpc_server_start(server.server);
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    ck_assert_int_eq(pthread_create(&server.thread, NULL, server_main, NULL), 0);
    ck_assert_int_eq(voxel_client_open(address, NULL, &client, NULL), VOXEL_OK);
    return client;
}

/* The request that waits ends without success, and then the thread ends. */
static void end(struct voxel_client *client)
{
    voxel_client_close(client);
    gpr_timespec never = gpr_inf_future(GPR_CLOCK_MONOTONIC);
    grpc_completion_queue *last = grpc_completion_queue_create_for_pluck(NULL);
    grpc_server_shutdown_and_notify(server.server, last, NULL);
    grpc_completion_queue_pluck(last, NULL, never, NULL);
    pthread_join(server.thread, NULL);
    grpc_server_destroy(server.server);
    grpc_completion_queue_shutdown(last);
    grpc_completion_queue_destroy(last);
    grpc_completion_queue_shutdown(server.queue);
    while (grpc_completion_queue_next(server.queue, never, NULL).type !=
           GRPC_QUEUE_SHUTDOWN)
        continue;
    grpc_completion_queue_destroy(server.queue);
    server_seen();
    if (seen.view) munmap(seen.view, seen.view_bytes);
    grpc_shutdown_blocking();
}

/* Files of this test in a folder; of descriptors, every one. */
static int count_in(const char *folder, const char *prefix)
{
    DIR *list = opendir(folder);
    ck_assert_ptr_nonnull(list);
    int count = 0;
    for (struct dirent *one; (one = readdir(list));)
        count += strncmp(one->d_name, prefix, strlen(prefix)) == 0;
    closedir(list);
    return count;
}

static int count_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    ck_assert_ptr_nonnull(maps);
    char line[512];
    int count = 0;
    while (fgets(line, sizeof line, maps))
        count += strstr(line, "/dev/shm/voxel-") != NULL;
    fclose(maps);
    return count;
}

START_TEST(region_is_seen_by_the_server_and_has_no_name_left)
{
    struct voxel_client *client = begin();
    struct voxel_region *region;
    struct voxel_error error;
    ck_assert_int_eq(voxel_region_open(client, BYTES, &region, &error), VOXEL_OK);
    server_seen();
    ck_assert_str_eq(seen.method, SERVICE "SystemSharedMemoryRegister");
    ck_assert_uint_eq(voxel_region_bytes(region), BYTES);
    ck_assert_uint_eq(seen.view_bytes, BYTES);
    ck_assert_uint_eq(seen.object.st_mode & 07777, 0600);
    ck_assert_uint_eq(strlen(region->key), VOXEL_KEY_BYTES - 1);
    int fd = shm_open(region->key, O_RDWR, 0);
    ck_assert_int_eq(fd, -1);
    uint8_t *memory = voxel_region_memory(region);
    for (size_t i = 0; i < BYTES; i++) ck_assert_uint_eq(memory[i], 0);
    memory[BYTES - 1] = 42;
    server_seen();
    ck_assert_uint_eq(seen.view[BYTES - 1], 42);
    voxel_region_close(region);
    server_seen();
    ck_assert_str_eq(seen.method, SERVICE "SystemSharedMemoryUnregister");
    ck_assert_int_eq(seen.unregistered, 1);
    voxel_region_close(NULL);
    end(client);
}
END_TEST

/* Replaces the C library's function: a signal interrupts the first so many calls. */
static int interruptions;

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
int posix_fallocate(int fd, off_t offset, off_t bytes)
{
    if (interruptions > 0) {
        interruptions--;
        return EINTR;
    }
    return fallocate(fd, 0, offset, bytes) ? errno : 0;
}

START_TEST(signals_do_not_keep_a_region_from_being_made)
{
    struct voxel_client *client = begin();
    struct voxel_region *region;
    struct voxel_error error;
    size_t bytes = (9 << 20) + 5; /* takes several writes */
    interruptions = 3;
    enum voxel_code code = voxel_region_open(client, bytes, &region, &error);
    ck_assert_msg(code == VOXEL_OK, "%s", error.text);
    ck_assert_int_eq(interruptions, 0);
    server_seen();
    ck_assert_uint_ge((uint64_t)seen.object.st_blocks * 512,
                      bytes); /* all of it is there */
    voxel_region_close(region);
    end(client);
}
END_TEST

START_TEST(tensors_of_a_region_are_named_and_not_sent)
{
    struct voxel_client *client = begin();
    struct voxel_region *region;
    struct voxel_error error;
    ck_assert_int_eq(voxel_region_open(client, BYTES, &region, &error), VOXEL_OK);
    float *memory = voxel_region_memory(region);
    memory[0] = 1.5f;
    memory[1] = -2;
    struct voxel_tensor input = voxel_tensor_make("f", VOXEL_FP32, 2, 1, NULL);
    input.region = region;
    const struct voxel_place place = {
        .output = "x", .bytes = 8, .region = region, .region_offset = OUTPUT_AT};
    const struct voxel_request request = {.model = "m",
                                          .inputs = &input,
                                          .inputs_count = 1,
                                          .places = &place,
                                          .places_count = 1};
    struct voxel_answer *answer;
    ck_assert_int_eq(voxel_infer(client, &request, &answer, &error), VOXEL_OK);
    ck_assert_int_eq(answer->outputs_count, 1);
    const struct voxel_tensor *output = voxel_answer_find(answer, "x");
    ck_assert_ptr_eq(output->data, (const uint8_t *)(void *)memory + OUTPUT_AT);
    ck_assert_uint_eq(output->bytes, 8);
    ck_assert_ptr_eq(output->region, region);
    ck_assert_uint_eq(output->region_offset, OUTPUT_AT);
    ck_assert_mem_eq(output->data, memory, 8);
    voxel_answer_free(answer);
    voxel_region_close(region);
    end(client);
}
END_TEST

START_TEST(renewed_region_keeps_its_address_and_content)
{
    struct voxel_client *client = begin();
    struct voxel_region *region;
    struct voxel_error error;
    char before[VOXEL_KEY_BYTES];
    ck_assert_int_eq(voxel_region_open(client, BYTES, &region, &error), VOXEL_OK);
    memcpy(before, region->key, sizeof before);
    uint8_t *memory = voxel_region_memory(region);
    for (size_t i = 0; i < BYTES; i++) memory[i] = (uint8_t)(i * 7);
    ck_assert_int_eq(voxel_region_renew(region, &error), VOXEL_OK);
    server_seen();
    ck_assert_int_eq(seen.registered, 2);
    ck_assert_ptr_eq(voxel_region_memory(region), memory);
    ck_assert_str_ne(region->key, before);
    server_seen();
    ck_assert_mem_eq(seen.view, memory, BYTES);
    memory[5] = 99;
    ck_assert_uint_eq(seen.view[5], 99);
    ck_assert_int_eq(count_in("/dev/shm", before + 1), 0);
    ck_assert_int_eq(count_in("/dev/shm", region->name), 0);
    voxel_region_close(region);
    end(client);
}
END_TEST

START_TEST(refused_region_leaves_nothing)
{
    struct voxel_client *client = begin();
    struct voxel_region *region;
    struct voxel_error error;
    server.refuse = true;
    int mappings = count_mappings();
    ck_assert_int_eq(voxel_region_open(client, BYTES, &region, &error),
                     VOXEL_UNIMPLEMENTED);
    ck_assert_str_eq(error.text, "shared memory is not served");
    ck_assert_ptr_null(region);
    ck_assert_int_eq(count_mappings(), mappings);
    ck_assert_int_eq(voxel_region_open(client, 0, &region, &error),
                     VOXEL_INVALID_ARGUMENT);
    ck_assert_int_eq(voxel_region_open(client, SIZE_MAX, &region, &error),
                     VOXEL_INVALID_ARGUMENT);
    /* More than any test machine has. */
    enum voxel_code code = voxel_region_open(client, (size_t)1 << 50, &region, &error);
    ck_assert_msg(code == VOXEL_RESOURCE_EXHAUSTED || code == VOXEL_INTERNAL, "%s",
                  error.text);
    ck_assert_int_eq(count_mappings(), mappings);
    const struct voxel_device_memory memory = {.device = -1, .bytes = 1};
    ck_assert_int_eq(voxel_region_open_device(client, &memory, &region, &error),
                     VOXEL_INVALID_ARGUMENT);
    end(client);
}
END_TEST

START_TEST(thousand_regions_leave_nothing)
{
    struct voxel_client *client = begin();
    struct voxel_region *region;
    struct voxel_error error;
    char names[2][VOXEL_KEY_BYTES] = {"", ""};
    int descriptors = 0;
    int mappings = 0;
    for (int i = 0; i < REGIONS; i++) {
        ck_assert_int_eq(voxel_region_open(client, BYTES, &region, &error), VOXEL_OK);
        memcpy(names[i % 2], region->key, VOXEL_KEY_BYTES);
        ck_assert_str_ne(names[0], names[1]);
        ck_assert_int_eq(count_in("/dev/shm", region->name), 0);
        voxel_region_close(region);
        if (i) continue; /* the first made the connection */
        descriptors = count_in("/proc/self/fd", "");
        mappings = count_mappings();
    }
    ck_assert_int_eq(count_in("/proc/self/fd", ""), descriptors);
    ck_assert_int_eq(count_mappings(), mappings);
    server_seen();
    ck_assert_int_eq(seen.registered, REGIONS);
    ck_assert_int_eq(seen.unregistered, REGIONS);
    end(client);
}
END_TEST

START_TEST(device_region_sends_its_handle)
{
    struct voxel_client *client = begin();
    struct voxel_region *region;
    struct voxel_error error;
    struct voxel_device_memory memory = {.device = 3, .bytes = 4096};
    for (size_t i = 0; i < sizeof memory.handle; i++) memory.handle[i] = (uint8_t)(i * 5);
    ck_assert_int_eq(voxel_region_open_device(client, &memory, &region, &error),
                     VOXEL_OK);
    server_seen();
    ck_assert_str_eq(seen.method, SERVICE "CudaSharedMemoryRegister");
    Inference__CudaSharedMemoryRegisterRequest *read =
        inference__cuda_shared_memory_register_request__unpack(NULL, seen.message_bytes,
                                                               seen.message);
    ck_assert_ptr_nonnull(read);
    ck_assert_str_eq(read->name, region->name);
    ck_assert_uint_eq(read->raw_handle.len, VOXEL_HANDLE_BYTES);
    ck_assert_mem_eq(read->raw_handle.data, memory.handle, VOXEL_HANDLE_BYTES);
    ck_assert_int_eq(read->device_id, 3);
    ck_assert_uint_eq(read->byte_size, 4096);
    inference__cuda_shared_memory_register_request__free_unpacked(read, NULL);
    ck_assert_ptr_null(voxel_region_memory(region));
    ck_assert_int_eq(voxel_region_renew(region, &error), VOXEL_OK);
    server_seen();
    ck_assert_int_eq(seen.registered, 2);
    voxel_region_close(region);
    server_seen();
    ck_assert_str_eq(seen.method, SERVICE "CudaSharedMemoryUnregister");
    end(client);
}
END_TEST

START_TEST(region_of_another_client_is_refused)
{
    struct voxel_client *client = begin();
    struct voxel_client *other;
    struct voxel_region *region;
    struct voxel_error error;
    struct voxel_answer *answer;
    ck_assert_int_eq(voxel_client_open(address, NULL, &other, NULL), VOXEL_OK);
    ck_assert_int_eq(voxel_region_open(client, BYTES, &region, &error), VOXEL_OK);
    struct voxel_tensor input = voxel_tensor_make("f", VOXEL_FP32, 2, 1, NULL);
    input.region = region;
    struct voxel_request request = {.model = "m", .inputs = &input, .inputs_count = 1};
    ck_assert_int_eq(voxel_infer(other, &request, &answer, &error),
                     VOXEL_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text, "tensor 'f' lies in a region of another client");
    voxel_client_close(other);
    voxel_region_close(region);
    end(client);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_region");
    TCase *cases = tcase_create("region");
    tcase_set_timeout(cases, 30);
    tcase_add_test(cases, region_is_seen_by_the_server_and_has_no_name_left);
    tcase_add_test(cases, signals_do_not_keep_a_region_from_being_made);
    tcase_add_test(cases, tensors_of_a_region_are_named_and_not_sent);
    tcase_add_test(cases, renewed_region_keeps_its_address_and_content);
    tcase_add_test(cases, refused_region_leaves_nothing);
    tcase_add_test(cases, thousand_regions_leave_nothing);
    tcase_add_test(cases, device_region_sends_its_handle);
    tcase_add_test(cases, region_of_another_client_is_refused);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
