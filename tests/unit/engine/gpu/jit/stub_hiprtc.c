/* stub_hiprtc - a library that test_jit_amd opens in hipRTC's place.  It knows gfx90a, refuses
 * gfx906 with a line in its log, and ends its process for anything else, as Debian's does.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

static const char code[] = "\177ELF rtc";
static const char log_text[] = "kernels/90_scale.cu:7: error: of the stub\n";
static int refused;

int hiprtcVersion(int *major, int *minor)
{
    *major = 5;
    *minor = 2;
    return 0;
}
/* The texts must be the kernel's, and among its headers the one that it includes first. */
int hiprtcCreateProgram(void **program, const char *text, const char *name, int count,
                        const char *const *texts, const char *const *names)
{
    *program = &refused;
    if (strcmp(name, "kernels/90_scale.cu") || !strstr(text, "VX_KERNEL")) return 1;
    for (int i = 0; i < count; i++)
        if (!strcmp(names[i], "kernels/90_scale.h") && strstr(texts[i], "scale_args"))
            return 0;
    return 1;
}
int hiprtcCompileProgram(void *program, int count, const char *const *options)
{
    (void)program;
    for (int i = 0; i < count; i++) {
        if (!strcmp(options[i], "--gpu-architecture=gfx90a")) return 0;
        if (!strcmp(options[i], "--gpu-architecture=gfx906")) return refused = 6;
    }
    abort();
}
int hiprtcGetProgramLogSize(void *program, size_t *bytes)
{
    (void)program;
    *bytes = refused ? sizeof log_text : 1;
    return 0;
}
int hiprtcGetProgramLog(void *program, char *text)
{
    (void)program;
    memcpy(text, log_text, sizeof log_text);
    return 0;
}
int hiprtcGetCodeSize(void *program, size_t *bytes)
{
    (void)program;
    *bytes = sizeof code;
    return 0;
}
int hiprtcGetCode(void *program, char *out)
{
    (void)program;
    memcpy(out, code, sizeof code);
    return 0;
}
