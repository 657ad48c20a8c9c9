/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/jit/hiprtc.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/print.h"
#include "engine/gpu/driver/limits.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool allowed;

void vx_hiprtc_allow(void)
{
    allowed = true;
}

bool vx_hiprtc_allowed(void)
{
    return allowed;
}

struct hiprtc {
    int (*version)(int *, int *);
    int (*open)(void **, const char *, const char *, int, const char *const *,
                const char *const *);
    int (*run)(void *, int, const char *const *);
    int (*log_bytes)(void *, size_t *);
    int (*log)(void *, char *);
    int (*code_bytes)(void *, size_t *);
    int (*code)(void *, char *);
};

static bool hiprtc_find(const char *path, struct hiprtc *call)
{
    static const char *const names[] = {"hiprtcVersion",        "hiprtcCreateProgram",
                                        "hiprtcCompileProgram", "hiprtcGetProgramLogSize",
                                        "hiprtcGetProgramLog",  "hiprtcGetCodeSize",
                                        "hiprtcGetCode"};
    _Static_assert(VX_COUNT(names) * sizeof(void *) == sizeof *call, "one name each");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        vx_print_error("error: %s\n", dlerror());
        return false;
    }
    for (size_t i = 0; i < VX_COUNT(names); i++) {
        void *found = dlsym(library, names[i]);
        if (!found) {
            vx_print_error("error: %s has no function %s\n", path, names[i]);
            return false;
        }
        /* ISO C has no cast to a function pointer, but POSIX guarantees equal bits. */
        memcpy((char *)call + i * sizeof found, &found, sizeof found);
    }
    return true;
}

/* A whole file and a NUL; NULL, and the reason is printed. */
static char *file_read(const char *name)
{
    char *data = vx_alloc_zero(VX_JIT_TEXT_BYTES_MAX + 1);
    FILE *file = fopen(name, "re");
    if (data && file) {
        size_t got = fread(data, 1, VX_JIT_TEXT_BYTES_MAX, file);
        data[got] = 0;
    } else {
        vx_print_error("error: %s: %s\n", name, strerror(errno));
        vx_free(data);
        data = NULL;
    }
    if (file) (void)fclose(file);
    return data;
}

static void print_log(const struct hiprtc *call, void *program)
{
    size_t bytes = 0;
    char *log = NULL;
    if (!call->log_bytes(program, &bytes) && bytes > 1) log = vx_alloc_zero(bytes + 1);
    if (log && !call->log(program, log)) vx_print_error("%s", log);
    vx_free(log);
}

static int write_code(const struct hiprtc *call, void *program, const char *out)
{
    size_t bytes = 0;
    char *code = NULL;
    if (!call->code_bytes(program, &bytes) && bytes) code = vx_alloc(bytes);
    bool good = code && !call->code(program, code);
    FILE *file = good ? fopen(out, "we") : NULL;
    good = file && fwrite(code, 1, bytes, file) == bytes;
    if (file && fclose(file)) good = false;
    vx_free(code);
    if (!good)
        vx_print_error("error: hipRTC returned no binary, or it was not written\n");
    return good ? 0 : 1;
}

struct job {
    const char *out;
    const char **names; /* of the texts, the kernel's first */
    int count;
    const char **options;
    int options_count;
};

static int compile_texts(const struct hiprtc *call, const struct job *job,
                         const char *const *texts)
{
    void *program = NULL;
    int code = call->open(&program, texts[0], job->names[0], job->count - 1, texts + 1,
                          job->names + 1);
    if (!code) code = call->run(program, job->options_count, job->options);
    if (program) print_log(call, program);
    if (!code) return write_code(call, program, job->out);
    vx_print_error("error: hipRTC: error %d\n", code);
    return 1;
}

static int compile(const struct hiprtc *call, const struct job *job)
{
    const char *texts[VX_JIT_TEXTS_MAX];
    int read = 0;
    while (read < job->count && (texts[read] = file_read(job->names[read]))) read++;
    int code = read == job->count ? compile_texts(call, job, texts) : 1;
    for (int i = 0; i < read; i++) vx_free((void *)texts[i]);
    return code;
}

static int print_version(const struct hiprtc *call)
{
    int major = 0, minor = 0;
    if (call->version(&major, &minor)) return 1;
    vx_print("%d.%d\n", major, minor);
    return 0;
}

/* The child ends soon: the library stays open. */
int vx_hiprtc_main(int count, char **arguments)
{
    struct hiprtc call;
    if (count < 2 || !hiprtc_find(arguments[1], &call)) return 1;
    if (!strcmp(arguments[0], "version")) return print_version(&call);
    long texts = count > 4 ? strtol(arguments[3], NULL, 10) : 0;
    if (texts < 1 || texts > VX_JIT_TEXTS_MAX || texts > count - 4) {
        vx_print_error("error: this is voxeld's own child; it is not started by hand\n");
        return 2;
    }
    const char **names = (const char **)arguments + 4;
    const struct job job = {arguments[2], names, (int)texts, names + texts,
                            count - 4 - (int)texts};
    return compile(&call, &job);
}
