/* tls_session - one handshake, step by step, and who the client is.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/tls/tls_private.h"

#include <openssl/err.h>

#include <stdio.h>
#include <string.h>

/* ------- who the client is ------- */

static void learn_name(struct vx_tls_session *session)
{
    const X509 *certificate = SSL_get0_peer_certificate(session->ssl);
    session->name = (struct vx_tls_name){.subject = ""};
    if (certificate)
        vx_tls_subject_text(X509_get_subject_name(certificate), session->name.subject);
}

/* ------- why a handshake failed ------- */

static void say(struct vx_tls_session *session, const char *why)
{
    snprintf(session->why, sizeof session->why, "%s", why);
}

static enum vx_tls_result failed(struct vx_tls_session *session, int result)
{
    int kind = SSL_get_error(session->ssl, result);
    unsigned long error = ERR_peek_error();
    int reason = ERR_GET_REASON(error);
    if (kind == SSL_ERROR_ZERO_RETURN || kind == SSL_ERROR_SYSCALL || !error ||
        reason == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
        say(session, "the client closed the connection in its handshake: it may not "
                     "trust our certificate");
        return VX_TLS_LEFT;
    }
    const char *text = ERR_reason_error_string(error);
    say(session, text ? text : "TLS failed");
    if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) {
        say(session, "expected a client certificate, got none");
        return VX_TLS_NO_CERTIFICATE;
    }
    if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
        say(session, X509_verify_cert_error_string(SSL_get_verify_result(session->ssl)));
        return VX_TLS_BAD_CERTIFICATE;
    }
    /* OpenSSL's own, such as memory, have larger numbers than any alert. */
    if (reason >= SSL_AD_REASON_OFFSET && !ERR_COMMON_ERROR(error)) return VX_TLS_REFUSED;
    const char *full = vx_tls_keys_full();
    if (full) say(session, full);
    return full ? VX_TLS_CROWDED : VX_TLS_NO_AGREEMENT;
}

/* ------- a step ------- */

static bool begin(struct vx_tls_session *session)
{
    struct vx_tls *tls = session->tls;
    pthread_mutex_lock(&tls->lock);
    SSL_CTX *context = tls->context.ssl;
    SSL_CTX_up_ref(context);
    pthread_mutex_unlock(&tls->lock);
    session->ssl = SSL_new(tls->base);
    bool lent = session->ssl && vx_tls_keys_lend(context, session->ssl);
    SSL_CTX_free(context);
    if (!lent || !vx_tls_io_attach(session)) return false;
    SSL_set_accept_state(session->ssl);
    return true;
}

/* gRPC waits for the preface for ever, so its first byte is awaited here, and the rest by
 * govern/, as without TLS.  It stays in OpenSSL. */
static enum vx_tls_result await_preface(struct vx_tls_session *session)
{
    char bytes[sizeof VX_HTTP2_PREFACE - 1];
    int got = SSL_peek(session->ssl, bytes, sizeof bytes);
    if (got > 0 && !memcmp(bytes, VX_HTTP2_PREFACE, (size_t)got)) return VX_TLS_FINISHED;
    if (got <= 0 && vx_tls_io_drained(session, got)) return VX_TLS_UNDER_WAY;
    if (got <= 0) return failed(session, got);
    say(session, "expected HTTP/2, got something else");
    return VX_TLS_NO_AGREEMENT;
}

static enum vx_tls_result shake(struct vx_tls_session *session)
{
    const unsigned char *chosen;
    unsigned chosen_bytes;
    int result = SSL_do_handshake(session->ssl);
    if (result != 1) {
        int kind = SSL_get_error(session->ssl, result);
        bool waits = kind == SSL_ERROR_WANT_READ && !session->paused;
        return waits ? VX_TLS_UNDER_WAY : failed(session, result);
    }
    SSL_get0_alpn_selected(session->ssl, &chosen, &chosen_bytes);
    if (chosen_bytes != 2 || memcmp(chosen, "h2", 2) != 0) {
        say(session, "expected a client that offers HTTP/2 (ALPN h2), got one without");
        return VX_TLS_NO_AGREEMENT;
    }
    session->shaken = true;
    learn_name(session);
    return VX_TLS_UNDER_WAY;
}

enum vx_tls_result vx_tls_step(struct vx_tls_session *session)
{
    enum vx_tls_result result = VX_TLS_UNDER_WAY;
    pthread_mutex_lock(&session->lock);
    bool begun = session->ssl || begin(session);
    vx_tls_io_begin(session);
    if (!begun) {
        const char *full = vx_tls_keys_full();
        say(session, full ? full : "no memory for a handshake");
        result = VX_TLS_CROWDED;
    }
    if (!result && !session->shaken) result = shake(session);
    if (!result && session->shaken) result = await_preface(session);
    vx_tls_io_end(session); /* alerts, too */
    if (!result && session->broken) result = VX_TLS_LEFT;
    if (result || session->shaken) vx_tls_keys_return(session->ssl);
    session->records = 0;
    atomic_store(&session->pending, true);
    pthread_mutex_unlock(&session->lock);
    return result;
}
