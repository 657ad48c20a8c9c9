/* gpu/driver - one table of functions for the drivers of all vendors; gpu.c calls it.
 *
 * Most functions are the same for both vendors and are looked up by name in the driver's
 * library (driver.def).  Contexts, attribute numbers, shared memory and architecture
 * names differ: for these the table has functions of the vendor's file (cuda.c, hip.c).
 * The fake fills the same table with its own functions.  No vendor header is needed: the
 * constants that we pass are defined here, with the vendor's names beside them.
 *
 *   VX_TRY(vx_driver_open(&options, &why, &driver));
 *   int code = driver.device_count(&count);
 *
 * Owner    the caller's struct; libraries stay loaded until the process ends.
 * Thread   open: any; the functions: as the vendor says.
 * Limits   engine/gpu/driver/limits.h.
 * Fails    open: NOT_FOUND no library, FAILED_PRECONDITION the library lacks a function.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_DRIVER_H
#define VX_ENGINE_GPU_DRIVER_H

#include "engine/gpu/driver/gpu.h"

/* Attributes of a device; each vendor has its own number for each, -1 = none.  From the
 * clock on they are only of use: a driver may refuse them. */
enum vx_attribute {
    VX_ATTRIBUTE_PROCESSORS,
    VX_ATTRIBUTE_MAJOR, /* of the compute capability */
    VX_ATTRIBUTE_MINOR,
    VX_ATTRIBUTE_SHARED_BLOCK,
    VX_ATTRIBUTE_SHARED_PROCESSOR,
    VX_ATTRIBUTE_CLOCK_KHZ,
    VX_ATTRIBUTE_CACHE_BYTES,
    VX_ATTRIBUTE_WAVE, /* lanes */
    VX_ATTRIBUTES_COUNT
};

/* Numbers of the vendors' interfaces; both agree on these. */
#define VX_STREAM_NON_BLOCKING 1u /* CU_STREAM_NON_BLOCKING */
/* Priorities: smaller numbers go first, and a driver takes the nearest that it has. */
#define VX_STREAM_USUAL         0
#define VX_STREAM_URGENT        (-5)
#define VX_EVENT_TIMED          0u /* CU_EVENT_DEFAULT */
#define VX_CAPTURE_THREAD_LOCAL 1  /* CU_STREAM_CAPTURE_MODE_THREAD_LOCAL */
#define VX_IPC_LAZY_PEER        1u /* CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS */
#define VX_POINTER_DEVICE       9  /* CU_, HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL */

/* CUipcMemHandle, hipIpcMemHandle_t: passed by value. */
struct vx_driver_ipc {
    u8 bytes[VX_GPU_IPC_BYTES];
};

/* Error numbers that the engine distinguishes; both vendors agree on these too. */
enum vx_driver_code {
    VX_DRIVER_INVALID_VALUE = 1,
    VX_DRIVER_OUT_OF_MEMORY = 2,
    VX_DRIVER_STUB_LIBRARY = 34,
    VX_DRIVER_TOO_OLD = 35,
    VX_DRIVER_NO_DEVICE = 100,
    VX_DRIVER_INVALID_DEVICE = 101,
    VX_DRIVER_INVALID_IMAGE = 200,
    VX_DRIVER_NO_BINARY = 209,
    VX_DRIVER_INVALID_HANDLE = 400,
    VX_DRIVER_NOT_FOUND = 500,
    VX_DRIVER_NOT_READY = 600,
    VX_DRIVER_ILLEGAL_ADDRESS = 700,
    VX_DRIVER_HOST_PINNED_ALREADY = 712,
    VX_DRIVER_LAUNCH_FAILED = 719,
    VX_DRIVER_UNKNOWN = 999,
};

/* Every function has an index, so that an error can name it. */
enum vx_driver_call {
#define VX_ROW(field_, cuda_, hip_, arguments_)     VX_CALL_##field_,
#define VX_ROW_ONE(field_, cuda_, hip_, arguments_) VX_CALL_##field_,
#include "engine/gpu/driver/driver.def"
#undef VX_ROW
#undef VX_ROW_ONE
    VX_CALLS_COUNT
};

/* A launch as one struct: the form in which the fake driver takes it. */
struct vx_driver_launch {
    void *function;
    struct vx_grid grid;
    unsigned threads, shared;
    bool early; /* gpu.h */
    void *stream;
    void *args;
};

/* The name under which kernels are compiled for a device, and vx_caps.arch. */
#define VX_ARCH_BYTES 16
struct vx_driver_arch {
    char name[VX_ARCH_BYTES];
    i32 number;
};

struct vx_driver {
    enum vx_gpu_vendor vendor;
    const char *word; /* "CUDA" */
    void *library;    /* NULL for the fake */
    const char *root; /* put before /sys and /dev; "" except in tests */
    i32 version_min;
    const i32 *attributes; /* the vendor's numbers, VX_ATTRIBUTES_COUNT */

#define VX_ROW(field_, cuda_, hip_, arguments_)     int(*field_) arguments_;
#define VX_ROW_ONE(field_, cuda_, hip_, arguments_) int(*field_) arguments_;
#include "engine/gpu/driver/driver.def"
#undef VX_ROW
#undef VX_ROW_ONE

    /* Functions that differ between vendors; they return the driver's error code. */
    int (*open)(const struct vx_driver *driver, int device, void **context);
    int (*use)(const struct vx_driver *driver, int device, void *context);
    void (*close)(const struct vx_driver *driver, int device);
    int (*shared_allow)(const struct vx_driver *driver, void *function, int bytes);
    int (*start)(const struct vx_driver *driver, const struct vx_driver_launch *launch);
    /* `got` are the device's attributes. */
    vx_status (*identify)(const struct vx_driver *driver, int device, const int *got,
                          struct vx_why *why, struct vx_driver_arch *arch);
    /* NULL, or writes what may be the cause that the driver finds no device. */
    void (*absent)(const struct vx_driver *driver, char *text, size_t bytes);
    /* NULL = error_text gives the text. */
    const char *(*text)(const struct vx_driver *driver, int code);
    unsigned (*ipc_flags)(i32 version); /* NULL = VX_IPC_LAZY_PEER */
};

/* Opens the vendor's library (options->library or the search list) and finds every
 * function; calls none of them. */
VX_MUST_USE vx_status vx_driver_open(const struct vx_gpu_options *options,
                                     struct vx_why *why, struct vx_driver *driver);
/* Fill the vendor's part of the table: all but the library's functions. */
void vx_driver_cuda(struct vx_driver *driver);
void vx_driver_hip(struct vx_driver *driver);
void vx_driver_fake(struct vx_driver *driver);
/* Calls cuLaunchKernel or hipModuleLaunchKernel with the fields of the struct; no launch begins
 * early. */
int vx_driver_start(const struct vx_driver *driver,
                    const struct vx_driver_launch *launch);

/* The vendor's name of a function: "cuMemAlloc_v2". */
const char *vx_driver_call_name(enum vx_gpu_vendor vendor, enum vx_driver_call call);
/* True if `code` is a sticky error: the context returns nothing else from then on. */
bool vx_driver_sticky(int code);
/* The driver's version as its vendor writes it: "12.4", "6.3". */
void vx_driver_version_text(enum vx_gpu_vendor vendor, i32 version,
                            char text[VX_VERSION_BYTES]);
/* The vendor's text for an error code; never NULL. */
const char *vx_driver_error_text(const struct vx_driver *driver, int code);

#endif
