/* gpu/fake_parts - what the files of the fake driver share.
 *
 * Owner    objects belong to the fake's one context and end with it.
 * Thread   any; vx_fake.lock keeps counts and lists.
 * Limits   below.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_FAKE_PARTS_H
#define VX_ENGINE_GPU_FAKE_PARTS_H

#include "engine/gpu/driver.h"
#include "engine/gpu/fake.h"

#include <pthread.h>

/* Arguments of one launch: twice the largest struct of kernels/. */
#define VX_FAKE_ARGS_BYTES 512

/* Launches and copies of one recording: a network of 1024 layers has fewer. */
#define VX_FAKE_NODES_MAX 8192

enum vx_fake_kind {
    VX_FAKE_MODULE =
        0x666b4d4f, /* "fkMO": so that a stray pointer is not taken for one */
    VX_FAKE_FUNCTION = 0x666b4655,
    VX_FAKE_STREAM = 0x666b5354,
    VX_FAKE_EVENT = 0x666b4556,
};

/* The beginning of everything the driver hands out. */
struct vx_fake_object {
    enum vx_fake_kind kind;
    struct vx_fake_object *previous, *next;
    void *inside; /* of a module its text, of a stream the recording in progress */
    void *queue;  /* of a stream: what waits */
};

struct vx_fake_function {
    struct vx_fake_object object;
    struct vx_fake_object *module;
    const struct vx_kernel_spec *spec;
    enum vx_number type;
    int shared; /* that was asked for */
};

/* What one call answers before it does anything: 0 = go on. */
int vx_fake_step(void);
/* The same for a launch; also told when it may run. */
int vx_fake_step_launch(bool *run);
/* Zeroed and in the list of what ends with the context; NULL = no memory. */
void *vx_fake_object_open(enum vx_fake_kind kind, size_t bytes);
void vx_fake_object_close(struct vx_fake_object *object);
bool vx_fake_is(const void *object, enum vx_fake_kind kind);
/* How often an event is asked about in vain; 0 = streams run at once. */
i32 vx_fake_event_polls(void);
/* Calls `each` for all objects of the kind; which open and close none. */
void vx_fake_each(enum vx_fake_kind kind, void (*each)(struct vx_fake_object *object));
/* True when device memory of ours holds all of it. */
bool vx_fake_holds(u64 address, size_t bytes);

size_t vx_fake_memory_total(void); /* of the device */
void vx_fake_on_pin(void);         /* what the test wants to be told */

/* The part of the table that is about memory (fake_memory.c). */
void vx_driver_fake_memory(struct vx_driver *driver);
void vx_fake_memory_close(void); /* ends every piece */

/* The part that is about memory of other processes and of the host (fake_foreign.c). */
void vx_driver_fake_foreign(struct vx_driver *driver);
void vx_fake_foreign_close(void); /* lets go of all of it */
bool vx_fake_foreign_holds(u64 address, size_t bytes);
/* The piece of our own that holds so many bytes from the address on; false = none. */
bool vx_fake_range(u64 address, size_t wanted, u64 *base, size_t *bytes);
/* Whether [address, address + wanted) is within [base, base + bytes). */
static inline bool vx_fake_within(u64 address, size_t wanted, u64 base, size_t bytes)
{
    return address >= base && address - base <= bytes &&
           wanted <= bytes - (address - base);
}

/* The part of the table that is about streams (fake_queue.c). */
void vx_driver_fake_queue(struct vx_driver *driver);
void vx_fake_queue_drain(void); /* runs all that waits on any stream */
void vx_fake_queue_close(void); /* ends every graph and recording */

#endif
