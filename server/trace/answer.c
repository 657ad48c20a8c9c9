/* SPDX-License-Identifier: Apache-2.0 */
#include "server/trace/answer.h"

#include "engine/base/process/check.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

/* ------- parts of an answer ------- */

/* Appends as much as fits, and keeps the text terminated. */
static void text_add(char *text, size_t *length, const char *more, size_t bytes)
{
    size_t left = VX_ANSWER_HEADER_BYTES - 1 - *length;
    if (bytes > left) bytes = left;
    memcpy(text + *length, more, bytes);
    *length += bytes;
    text[*length] = '\0';
}

static int answer_on_name(llhttp_t *llhttp, const char *at, size_t length)
{
    struct vx_answer *answer = llhttp->data;
    text_add(answer->name, &answer->name_length, at, length);
    return 0;
}

static int answer_on_value(llhttp_t *llhttp, const char *at, size_t length)
{
    struct vx_answer *answer = llhttp->data;
    text_add(answer->value, &answer->value_length, at, length);
    return 0;
}

static int answer_on_header(llhttp_t *llhttp)
{
    struct vx_answer *answer = llhttp->data;
    while (answer->value_length && answer->value[answer->value_length - 1] == ' ')
        answer->value[--answer->value_length] = '\0';
    if (!strcasecmp(answer->name, "retry-after"))
        memcpy(answer->retry_after, answer->value, sizeof answer->retry_after);
    answer->name_length = answer->value_length = 0;
    answer->name[0] = answer->value[0] = '\0';
    return 0;
}

static int answer_on_headers(llhttp_t *llhttp)
{
    llhttp->upgrade = 0; /* ignore an offer to switch to another protocol */
    return 0;
}

static int answer_on_body(llhttp_t *llhttp, const char *at, size_t length)
{
    struct vx_answer *answer = llhttp->data;
    size_t left = sizeof answer->body - answer->body_length;
    if (length > left) length = left;
    memcpy(answer->body + answer->body_length, at, length);
    answer->body_length += length;
    return 0;
}

/* "100 Continue" and its kind come before the answer. */
static int answer_on_end(llhttp_t *llhttp)
{
    struct vx_answer *answer = llhttp->data;
    if (llhttp->status_code < 200) return 0;
    answer->status = llhttp->status_code;
    answer->keep_alive = llhttp_should_keep_alive(llhttp);
    answer->complete = true;
    return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
    .on_header_field = answer_on_name,
    .on_header_value = answer_on_value,
    .on_header_value_complete = answer_on_header,
    .on_headers_complete = answer_on_headers,
    .on_body = answer_on_body,
    .on_message_complete = answer_on_end,
};

/* ------- the answer ------- */

void vx_answer_init(struct vx_answer *answer)
{
    memset(answer, 0, sizeof *answer);
    llhttp_init(&answer->llhttp, HTTP_RESPONSE, &settings);
    answer->llhttp.data = answer;
}

static enum vx_answered answer_refuse(struct vx_answer *answer, const char *why)
{
    answer->why = why;
    return VX_ANSWER_BAD;
}

enum vx_answered vx_answer_feed(struct vx_answer *answer, const char *bytes,
                                size_t length)
{
    VX_ASSERT(!answer->complete);
    VX_ASSERT(!answer->why);
    if (length > VX_ANSWER_WIRE_BYTES_MAX - answer->wire_bytes)
        return answer_refuse(answer, "its answer has no end");
    answer->wire_bytes += length;
    llhttp_errno_t error = llhttp_execute(&answer->llhttp, bytes, length);
    if (answer->complete) {
        /* Bytes behind the answer belong to nothing that was asked. */
        if (llhttp_get_error_pos(&answer->llhttp) != bytes + length)
            answer->keep_alive = false;
        return VX_ANSWER_DONE;
    }
    return error == HPE_OK ? VX_ANSWER_MORE
                           : answer_refuse(answer, "what it answered is not HTTP/1.1");
}

enum vx_answered vx_answer_end(struct vx_answer *answer)
{
    bool whole = llhttp_finish(&answer->llhttp) == HPE_OK || answer->complete;
    answer->keep_alive = false;
    if (whole && answer->complete) return VX_ANSWER_DONE;
    return answer_refuse(answer, "it closed the connection before the end of its answer");
}

/* ------- when to try again ------- */

i64 vx_retry_after_ms(const char *text, i64 wall_ms)
{
    size_t digits = strspn(text, "0123456789");
    i64 ms;
    if (digits && !text[digits]) {
        /* Nine digits are thirty years. */
        ms = digits > 9 ? VX_RETRY_AFTER_MS_MAX : strtol(text, NULL, 10) * 1000;
    } else {
        struct tm when = {0};
        const char *end = strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &when);
        if (!end || *end) return -1;
        ms = (i64)timegm(&when) * 1000 - wall_ms;
        if (ms < 0) ms = 0;
    }
    return ms < VX_RETRY_AFTER_MS_MAX ? ms : VX_RETRY_AFTER_MS_MAX;
}
