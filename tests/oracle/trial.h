/* trial - one launch of a kernel on copies of its arguments, beside its reference.
 *
 * A trial is an argument struct that points into host memory, and a list that says which
 * of its fields are pointers, how long their buffers are, and how these are compared.  The
 * device gets a copy of everything, the outputs poisoned and a guard around each buffer;
 * then the reference runs on the host's copy.  Memory of the device that no output covers
 * must be unchanged.
 *
 *   struct vx_trial trial = {.kernel = {spec, tile, type}, .args = &args};
 *   args.in = vx_trial_in(&trial, &args.in, data, bytes);
 *   vx_trial_out(&trial, &args.out, bytes)->kind = VX_FIELD_REAL;
 *   vx_trial_run(rig, &trial);
 *
 * Owner    rig: the program; data: an arena of the rig, until vx_rig_reset.
 * Thread   one, which becomes the device thread.
 * Limits   VX_TRIAL_FIELDS_MAX pointers; VX_RIG_BYTES of host memory for one trial.
 * Fails    what is wrong is printed and counted; an error of the driver ends the program.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_ORACLE_TRIAL_H
#define VX_TESTS_ORACLE_TRIAL_H

#include "engine/base/memory/arena.h"
#include "engine/tools/workbench.h"

/* 70 pieces of two pointers each, and what they are joined to. */
#define VX_TRIAL_FIELDS_MAX 160
#define VX_TRIAL_LABEL      160
/* Host memory of one trial, inputs and all; touched only where it is used. */
#define VX_RIG_BYTES ((size_t)2 << 30)
/* The most binaries of all kernels: 30 tiles of 4 types are the most of one kernel. */
#define VX_RIG_KERNELS_MAX 512
/* The most failures that are printed; more are only counted. */
#define VX_RIG_TOLD_MAX 40
/* CTest's code for a test that was skipped. */
#define VX_RIG_SKIPPED 77

/* How thorough: the sanitizers make a kernel a hundred times slower, and the fake runs
 * every launch as a plain loop on one core. */
enum vx_rig_size { VX_RIG_FULL, VX_RIG_FAKE, VX_RIG_SMALL };

/* Random numbers of a type and size. */
struct vx_rig_block {
    enum vx_number type;
    f64 scale;
    void *typed;
};
#define VX_RIG_BLOCKS_MAX 32

struct vx_rig {
    struct vx_workbench bench;
    const struct vx_caps *caps;
    const char *only; /* part of a kernel's name; NULL = all */
    /* Only kernels of coordinates, and of numbers those without tiles in one type. */
    bool untiled;
    enum vx_rig_size size;
    u64 seed, state; /* of the generator: its start, and its state now */
    i64 trials, failures;
    bool quiet;                                       /* failures are only counted */
    struct vx_jit_wanted kernels[VX_RIG_KERNELS_MAX]; /* all that this device runs */
    bool ran[VX_RIG_KERNELS_MAX];
    i32 kernels_count;
    struct vx_rig_block blocks[VX_RIG_BLOCKS_MAX];
    i32 blocks_count;
    struct vx_arena arena;
    void *block;
    void *device; /* memory of trials */
    size_t device_bytes;
};

enum vx_field_role { VX_FIELD_IN, VX_FIELD_OUT, VX_FIELD_BOTH };
enum vx_field_kind {
    VX_FIELD_EXACT,
    VX_FIELD_REAL, /* numbers of `type`, inside a bound */
    VX_FIELD_MINE  /* the caller checks `back` */
};
struct vx_field {
    size_t at;  /* the pointer's offset in the arguments or in a field */
    i32 inside; /* 1 + the index of that field; 0 = the arguments */
    void *host;
    size_t bytes;
    enum vx_field_role role;
    enum vx_field_kind kind;
    enum vx_number type; /* REAL */
    f64 absolute; /* REAL: how far beyond two roundings to the type an element may be;
                     below 0: not even those */
    i32 shift;    /* device memory begins this many bytes behind a line */
    i32 same;     /* another field's memory: 1 + its index */
    void *back;   /* what the device left there; not of IN */
    size_t offset;
};
struct vx_trial {
    struct vx_jit_wanted kernel;
    void *args;
    struct vx_field fields[VX_TRIAL_FIELDS_MAX];
    i32 count;
    i32 inside; /* of the fields that are added now */
    char label[VX_TRIAL_LABEL];
};

/* --- the rig --- */
struct vx_rig_wanted {
    struct vx_workbench_wanted device;
    const char *only, *seed;
    enum vx_rig_size size;
    bool quiet, untiled;
};
/* True: this process was started to run hipRTC (engine/gpu/jit/hiprtc.h).  Every program with
 * a rig asks first, and is then its own compiler on AMD. */
bool vx_rig_is_compiler(int count, char **arguments);
VX_MUST_USE vx_status vx_rig_open(const struct vx_rig_wanted *wanted, struct vx_why *why,
                                  struct vx_rig **rig);
void vx_rig_close(struct vx_rig **rig);
/* The exit code of a program that could not open a rig: VX_RIG_SKIPPED on a machine
 * without a driver or a device, unless a device was named; anything else is an error. */
int vx_rig_absent(const char *program, const struct vx_rig_wanted *wanted,
                  vx_status status, const struct vx_why *why);
/* Compiles and loads every kernel with every tile and type that the device runs. */
VX_MUST_USE vx_status vx_rig_ready(struct vx_rig *rig, struct vx_why *why);
/* True when --only lets it pass, and of a kernel that is broken on purpose nothing has failed yet. */
bool vx_rig_wants(const struct vx_rig *rig, const char *name);
/* The next kernel of this name behind `kernel`, NULL first; NULL at the end. */
const struct vx_jit_wanted *vx_rig_next(struct vx_rig *rig, const char *name,
                                        const struct vx_jit_wanted *kernel);
/* Notes that a kernel was launched other than by vx_trial_run. */
void vx_rig_mark(struct vx_rig *rig, const struct vx_jit_wanted *kernel);
/* Says which kernels never ran; that is a failure unless --only was given. */
void vx_rig_check_ran(struct vx_rig *rig);
VX_PRINTF(2, 3) void vx_rig_fail(struct vx_rig *rig, const char *format, ...);
void vx_rig_need(struct vx_rig *rig, vx_status status, const struct vx_why *why);
/* Frees all memory that was taken; earlier trials are no longer valid. */
void vx_rig_reset(struct vx_rig *rig);
void *vx_rig_take(struct vx_rig *rig, size_t bytes); /* zeroed */
/* Device memory of trials, at least this much; its old content may be lost. */
u8 *vx_rig_device(struct vx_rig *rig, size_t bytes);
void vx_rig_poison(void *memory, size_t bytes);

/* --- random numbers --- */
u64 vx_rig_random(struct vx_rig *rig);
i64 vx_rig_below(struct vx_rig *rig, i64 end); /* 0 .. end-1 */
/* Uniform in [-scale, scale), rounded to the type. */
void *vx_rig_reals(struct vx_rig *rig, enum vx_number type, i64 count, f64 scale);

/* --- a trial --- */
void vx_trial_init(struct vx_trial *trial, const struct vx_jit_wanted *kernel,
                   void *args);
VX_PRINTF(2, 3) void vx_trial_label(struct vx_trial *trial, const char *format, ...);
/* `pointer` is the field of the arguments, as its address; it gets `data`. */
struct vx_field *vx_trial_in(struct vx_trial *trial, const void *pointer,
                             const void *data, size_t bytes);
/* Memory for an output, poisoned on both sides. */
struct vx_field *vx_trial_out(struct vx_rig *rig, struct vx_trial *trial,
                              const void *pointer, size_t bytes);
/* A field that the kernel reads and writes. */
struct vx_field *vx_trial_both(struct vx_trial *trial, const void *pointer, void *data,
                               size_t bytes);
/* A pointer to what a field that is there already points to: in place. */
void vx_trial_same(struct vx_trial *trial, const void *pointer,
                   const struct vx_field *field);
/* The fields that are added from now on are pointers in the data of this one, which the
 * kernel only reads; NULL: pointers in the arguments again. */
void vx_trial_inside(struct vx_trial *trial, const struct vx_field *field);
/* Runs both and compares; true = nothing wrong was found. */
bool vx_trial_run(struct vx_rig *rig, struct vx_trial *trial);

/* What one rounding to the type may change of a number of size 1, at most. */
f64 vx_trial_step(enum vx_number type);

#endif
