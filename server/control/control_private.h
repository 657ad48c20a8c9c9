/* control_private - what the files of control share; no other file includes it.
 *
 *   control.c             the table of methods, the server's own answers, metadata
 *   control_config.c      ModelConfig
 *   control_memory.c      System- and CudaSharedMemory: Status, Register, Unregister
 *   control_settings.c    LogSettings, TraceSetting
 *   control_repository.c  RepositoryIndex, RepositoryModelLoad, RepositoryModelUnload
 *   control_statistics.c  ModelStatistics
 *
 * A handler reads question->request, builds its answer in the scratch arena and points to
 * it.
 *
 * Thread   loop.
 * Fails    as control.h says; RESOURCE_EXHAUSTED when the scratch arena is full.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_CONTROL_PRIVATE_H
#define VX_SERVER_CONTROL_PRIVATE_H

#include "server/control/control.h"

#include <protobuf-c/protobuf-c.h>

/* Stock clients show this as the platform; Triton's names stand for its backends. */
#define VX_CONTROL_PLATFORM "voxeld"
/* A decimal i64 and its NUL. */
#define VX_CONTROL_NUMBER_BYTES 21

struct vx_control_question {
    const struct vx_front_view *view;
    const ProtobufCMessage *request;
    struct vx_arena *scratch;
    struct vx_why *why;
    const struct vx_peer *peer; /* NULL: not known */
    struct vx_access_ticket *ticket;
    void *waiter; /* passed to on_ended or on_added; NULL: those calls are refused */
    bool later;   /* out: with OK, there is no answer yet */
    const ProtobufCMessage *answer; /* out */
};

/* A type's name in the protocol's metadata, and its number in the configuration. */
struct vx_control_dtype {
    const char *name;
    int config; /* Inference__DataType */
};
struct vx_control_dtype vx_control_dtype_get(enum vx_dtype dtype);

/* A worker's device, with the index that clients use; a CPU's index is 0. */
struct vx_control_device {
    bool gpu;
    i32 index;
};
struct vx_control_device vx_control_device_of(const struct vx_workers *workers,
                                              i32 worker);

/* Whether the client may name that model; every handler whose message names one asks. */
VX_MUST_USE vx_status vx_control_may(struct vx_control_question *question,
                                     const char *model);
/* Whether a list for this client has that model. */
bool vx_control_sees(struct vx_control_question *question, const char *model);
/* The name of the client's token, for the log; "" = none. */
const char *vx_control_token(const struct vx_control_question *question);

/* Finds the instance that serves this name and version now; fails with INVALID_ARGUMENT,
 * NOT_FOUND or UNAVAILABLE, and as vx_control_may does. */
VX_MUST_USE vx_status vx_control_pick(struct vx_control_question *question,
                                      const char *name, const char *version,
                                      struct vx_instance **row);

VX_MUST_USE vx_status vx_control_model_config(struct vx_control_question *question);
VX_MUST_USE vx_status vx_control_model_statistics(struct vx_control_question *question);
VX_MUST_USE vx_status vx_control_repository_index(struct vx_control_question *question);
VX_MUST_USE vx_status vx_control_repository_load(struct vx_control_question *question);
VX_MUST_USE vx_status vx_control_repository_unload(struct vx_control_question *question);
VX_MUST_USE vx_status vx_control_system_status(struct vx_control_question *question);
VX_MUST_USE vx_status vx_control_system_register(struct vx_control_question *question);
VX_MUST_USE vx_status vx_control_system_unregister(struct vx_control_question *question);
VX_MUST_USE vx_status vx_control_device_status(struct vx_control_question *question);
VX_MUST_USE vx_status vx_control_device_register(struct vx_control_question *question);
VX_MUST_USE vx_status vx_control_device_unregister(struct vx_control_question *question);
VX_MUST_USE vx_status vx_control_trace_setting(struct vx_control_question *question);
VX_MUST_USE vx_status vx_control_log_settings(struct vx_control_question *question);

#endif
