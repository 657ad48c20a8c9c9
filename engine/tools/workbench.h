/* workbench - opens a device with all that a tool needs, and parses the tool's flags.
 *
 *   static const struct vx_flag flags[] = {{"--runs", &runs}, ...};
 *   if (!vx_flags_parse(count, arguments, flags, VX_COUNT(flags))) return 2;
 *   VX_TRY(vx_workbench_open(&wanted, &why, &bench));
 *   vx_workbench_close(&bench);
 *
 * Owner    the caller.
 * Thread   one, which becomes the loading and the device thread.
 * Limits   -
 * Fails    as gpu.h and jit.h; INVALID_ARGUMENT for a device that is not of the form
 *          cuda:0, hip:0 or fake.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_TOOLS_WORKBENCH_H
#define VX_ENGINE_TOOLS_WORKBENCH_H

#include "engine/gpu/jit/kernel_set.h"

/* A flag with a value. */
struct vx_flag {
    const char *name;   /* "--runs" */
    const char **value; /* stays as it is when the flag is not given */
};
/* What is typed in front of a tool's name; "voxeld-tools" until it is set. */
void vx_tool_program_set(const char *name);
/* It again: errors begin with it and the tool's name. */
const char *vx_tool_program(void);
/* True if the arguments ask for help; prints it then, with the program's name in front of the
 * usage, which is the text's first paragraph. */
bool vx_tool_help(int count, char **arguments, const char *usage);
/* The same text behind an error, on standard error. */
void vx_tool_print_usage(const char *usage);
/* False if a flag is not in the list or has no value; the reason is printed. */
bool vx_flags_parse(int count, char **arguments, const struct vx_flag *flags,
                    size_t flags_count);
/* Parses a whole number in [least, most]; false if it is none, which is printed. */
bool vx_flag_number(const char *name, const char *text, i64 least, i64 most, i64 *number);
/* The same for bytes, as the settings of the server take them: "4G". */
bool vx_flag_bytes(const char *name, const char *text, i64 least, i64 most, i64 *bytes);
/* Copies the next word of a comma-separated list, cut to 63 bytes, to `word`; returns the
 * rest of the list, or NULL if there was no word. */
const char *vx_flag_word(const char *list, char word[64]);

struct vx_workbench_wanted {
    const char *device; /* "cuda:0", "hip:0", "fake"; NULL = cuda:0 */
    const char *cache;  /* of compiled kernels, or NULL */
    const char *driver; /* paths; NULL = searched */
    const char *compiler;
    const char *texts; /* a folder of kernels; NULL = those in this binary */
};
struct vx_workbench {
    struct vx_gpu *gpu;
    struct vx_jit *jit;
    struct vx_kernel_set *set;
    struct vx_gpu_stream *stream;
    bool fake;
};
VX_MUST_USE vx_status vx_workbench_open(const struct vx_workbench_wanted *wanted,
                                        struct vx_why *why, struct vx_workbench *bench);
void vx_workbench_close(struct vx_workbench *bench);
/* Parses "cuda:0"; false = not of that form. */
bool vx_workbench_device(const char *text, enum vx_gpu_vendor *vendor, i32 *index);

/* Draws a progress bar if stderr is a terminal; done == total removes it. */
void vx_tool_progress(const char *what, i64 done, i64 total);

#endif
