/* gpu/fake_parts - what the files of the fake driver share.
 *
 * Owner    objects belong to the fake's one context and end with it.
 * Thread   any; each file guards its counts and lists with its own locks.
 * Limits   below.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_FAKE_PARTS_H
#define VX_ENGINE_GPU_FAKE_PARTS_H

#include "engine/gpu/driver/driver.h"
#include "engine/gpu/fake/fake.h"

#include <pthread.h>

/* Arguments of one launch: twice the largest struct of kernels/. */
#define VX_FAKE_ARGS_BYTES 512

/* Operations of one capture or one queue: a network of 1024 layers has fewer. */
#define VX_FAKE_NODES_MAX 8192

/* "fkMO", "fkFU", "fkST", "fkEV": so that a stray pointer is not taken for an object. */
enum vx_fake_kind {
    VX_FAKE_MODULE = 0x666b4d4f,
    VX_FAKE_FUNCTION = 0x666b4655,
    VX_FAKE_STREAM = 0x666b5354,
    VX_FAKE_EVENT = 0x666b4556,
};

/* The beginning of every object that the driver returns. */
struct vx_fake_object {
    enum vx_fake_kind kind;
    struct vx_fake_object *previous, *next;
    void *inside;    /* of a module: its text; of a stream: the capture in progress */
    void *queue;     /* of a stream: its deferred work */
    bool lets_early; /* of a stream: behind its last operation a launch may begin early */
    bool urgent;     /* of a stream */
};

struct vx_fake_function {
    struct vx_fake_object object;
    struct vx_fake_object *module;
    const struct vx_kernel_spec *spec;
    enum vx_number type;
    int shared; /* bytes that a launch may ask for */
};

/* Counts a driver call; returns the error that is injected for it, 0 = none. */
int vx_fake_step(void);
/* The same for a launch; *run: the kernel may run. */
int vx_fake_step_launch(bool early, bool urgent, bool *run);
/* A zeroed object, which ends with the context at the latest; NULL = no memory. */
void *vx_fake_object_open(enum vx_fake_kind kind, size_t bytes);
void vx_fake_object_close(struct vx_fake_object *object);
bool vx_fake_is(const void *object, enum vx_fake_kind kind);
/* How often an event is polled in vain; 0 = streams run at once. */
i32 vx_fake_event_polls(void);
/* Calls `each` for all objects of the kind; it must not open or close objects. */
void vx_fake_each(enum vx_fake_kind kind, void (*each)(struct vx_fake_object *object));
/* True if one allocation or import of device memory holds all of it. */
bool vx_fake_holds(u64 address, size_t bytes);

size_t vx_fake_memory_total(void); /* of the device */
void vx_fake_on_pin(void);         /* calls the setting of that name */

/* The table's functions for memory (fake_memory.c). */
void vx_driver_fake_memory(struct vx_driver *driver);
void vx_fake_memory_close(void); /* frees all allocations */

/* The table's functions for the host's and other processes' memory (fake_foreign.c). */
void vx_driver_fake_foreign(struct vx_driver *driver);
void vx_fake_foreign_close(void); /* releases all of it */
bool vx_fake_foreign_holds(u64 address, size_t bytes);
/* Finds our allocation that holds `wanted` bytes from the address on; false = none. */
bool vx_fake_range(u64 address, size_t wanted, u64 *base, size_t *bytes);
/* Whether [address, address + wanted) is within [base, base + bytes). */
static inline bool vx_fake_within(u64 address, size_t wanted, u64 base, size_t bytes)
{
    return address >= base && address - base <= bytes &&
           wanted <= bytes - (address - base);
}

/* The table's functions for streams (fake_queue.c). */
void vx_driver_fake_queue(struct vx_driver *driver);
void vx_fake_queue_drain(void); /* runs the deferred work of every stream */
void vx_fake_queue_close(void); /* frees every graph, capture and queue */

#endif
