/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/status.h"

#include "engine/base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* At the end of a sentence that had no room. */
#define CUT "..."

void vx_why_set(struct vx_why *why, const char *format, ...)
{
    if (!why) return;
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(why->text, sizeof why->text, format, args);
    va_end(args);
    const bool cut = length >= (int)sizeof why->text;
    if (cut) why->text[sizeof why->text - sizeof CUT] = '\0';
    vx_utf8_mend(why->text, cut);
    if (cut) strcat(why->text, CUT);
}

const char *vx_status_text(vx_status status, const struct vx_why *why)
{
    if (!status.fault) return "";
    return why && why->text[0] ? why->text : status.fault->text;
}

enum vx_code vx_status_code(vx_status status)
{
    return status.fault ? status.fault->code : VX_CODE_OK;
}

const char *vx_code_name(enum vx_code code)
{
    switch (code) {
    case VX_CODE_OK: return "OK";
#define VX_ROW(name_, grpc_, meaning_)                                                   \
    case VX_CODE_##name_:                                                                \
        return #name_;
#include "engine/base/status.def"
#undef VX_ROW
    }
    return "UNKNOWN";
}

vx_status vx_status_of_code(enum vx_code code)
{
    static const struct vx_fault faults[] = {
#define VX_ROW(name_, grpc_, meaning_) {VX_CODE_##name_, meaning_, __FILE__, __LINE__},
#include "engine/base/status.def"
#undef VX_ROW
    };
    if (code == VX_CODE_OK) return VX_OK;
    for (size_t i = 0; i < VX_COUNT(faults); i++)
        if (faults[i].code == code) return (vx_status){&faults[i]};
    return vx_status_of_code(VX_CODE_INTERNAL);
}
