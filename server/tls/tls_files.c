/* tls_files - from the files of a certificate to a context of OpenSSL's.
 *
 * A file is read whole, once: what was checked is what is used, also when somebody
 * replaces the file meanwhile.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "server/tls/tls_private.h"

#include "engine/base/memory/access.h"
#include "engine/base/process/log.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Certificates of a client, all together: a chain of three is under 6 KB. */
#define CLIENT_CHAIN_BYTES_MAX (32 << 10)
#define CLIENT_CHAIN_DEPTH     8

/* AES-128 first: it is a quarter faster, and as far out of reach as AES-256.  A client
 * that wants ChaCha20 most, which has no AES in hardware, gets it. */
#define SUITES_13                                                                        \
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
/* Those of TLS 1.2 that HTTP/2 allows (RFC 9113, appendix A). */
#define SUITES_12 "ECDHE+AESGCM:ECDHE+CHACHA20"
/* Not ffdhe and P-521, which cost the server ten times as much as the client. */
#define GROUPS "X25519:P-256:P-384"

/* The last error of OpenSSL's, as a few words. */
static const char *openssl_says(char text[128])
{
    unsigned long code = ERR_peek_last_error();
    const char *full = vx_tls_keys_full();
    if (full) return full;
    const char *reason = code ? ERR_reason_error_string(code) : NULL;
    if (code && ERR_SYSTEM_ERROR(code))
        return strerror_r((int)ERR_GET_REASON(code), text, 128);
    if (reason) return reason;
    return "it is not understood";
}

/* ------- a file ------- */

struct text {
    char *at;
    size_t count, room;
    bool open; /* others may read the file */
};

static void text_close(struct text *text)
{
    if (!text->at) return;
    OPENSSL_cleanse(text->at, text->count);
    munmap(text->at, text->room);
    *text = (struct text){.at = NULL};
}

static vx_status text_fill(const char *setting, const char *path, int fd,
                           struct vx_why *why, struct text *text)
{
    while (text->count < text->room) {
        ssize_t got = read(fd, text->at + text->count, text->room - text->count);
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) return VX_OK;
        char error[128];
        VX_ENSURE_WHY(got > 0, why, INVALID_ARGUMENT, "a TLS file cannot be read",
                      "--%s %s: cannot be read: %s", setting, path,
                      strerror_r(errno, error, sizeof error));
        text->count += (size_t)got;
    }
    VX_FAIL_WHY(why, INVALID_ARGUMENT, "a TLS file is too large",
                "--%s %s: expected at most %d bytes", setting, path,
                VX_TLS_FILE_BYTES_MAX);
}

/* In pages of its own that no core dump has, since the file may be a private key. */
static vx_status text_open(const char *setting, const char *path, struct vx_why *why,
                           struct text *text)
{
    char error[VX_ACCESS_BYTES];
    struct stat is;
    *text = (struct text){.at = NULL};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* not to wait for a pipe */
    bool file = fd >= 0 && !fstat(fd, &is) && S_ISREG(is.st_mode);
    const char *wrong =
        fd < 0 ? vx_access_secret_text(path, errno, error) : "it is not a file";
    if (!file && fd >= 0) close(fd);
    VX_ENSURE_WHY(file, why, INVALID_ARGUMENT, "a TLS file cannot be read",
                  "--%s %.120s: cannot be read: %s", setting, path, wrong);
    text->open = is.st_mode & S_IROTH;
    text->room = is.st_size < VX_TLS_FILE_BYTES_MAX ? (size_t)is.st_size + 1
                                                    : (size_t)VX_TLS_FILE_BYTES_MAX;
    void *at = mmap(NULL, text->room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                    -1, 0);
    vx_status status = VX_OK;
    if (at != MAP_FAILED) {
        text->at = at;
        madvise(at, text->room, MADV_DONTDUMP);
        status = text_fill(setting, path, fd, why, text);
    }
    close(fd);
    if (status.fault) text_close(text);
    VX_ENSURE(status.fault || text->at, RESOURCE_EXHAUSTED,
              "no memory to read TLS files");
    return status;
}

/* ------- times ------- */

static i64 seconds_of(const ASN1_TIME *time)
{
    struct tm parts;
    return time && ASN1_TIME_to_tm(time, &parts) ? (i64)timegm(&parts) : 0;
}

static i64 sooner(i64 a, i64 b)
{
    return !a || (b && b < a) ? b : a;
}

/* ------- the certificate and its key ------- */

/* OpenSSL asks for a password on the terminal otherwise. */
static int no_password(char *text, int size, int writes, void *asked)
{
    (void)text;
    (void)size;
    (void)writes;
    *(bool *)asked = true;
    return -1;
}

void vx_tls_subject_text(const X509_NAME *from, char text[VX_TLS_NAME_BYTES])
{
    BIO *out = BIO_new(BIO_s_mem());
    text[0] = 0;
    /* Cut off, two subjects could be the same text. */
    if (out && X509_NAME_print_ex(out, from, 0, XN_FLAG_RFC2253) >= 0 &&
        BIO_ctrl_pending(out) < VX_TLS_NAME_BYTES) {
        int got = BIO_read(out, text, VX_TLS_NAME_BYTES - 1);
        text[got > 0 ? got : 0] = 0;
    }
    BIO_free(out);
}

/* The first certificate is the server's, those behind it lead to a root. */
static vx_status use_cert(const struct vx_tls_files *files, const struct text *text,
                          struct vx_why *why, struct vx_tls_context *context)
{
    BIO *in = BIO_new_mem_buf(text->at, (int)text->count);
    X509 *one = in ? PEM_read_bio_X509(in, NULL, NULL, NULL) : NULL;
    bool good = one && SSL_CTX_use_certificate(context->ssl, one) == 1;
    char said[128];
    if (one) {
        context->cert_until_s = seconds_of(X509_get0_notAfter(one));
        vx_tls_subject_text(X509_get_subject_name(one), context->subject);
    }
    bool found = one != NULL;
    X509_free(one);
    while (good && (one = PEM_read_bio_X509(in, NULL, NULL, NULL))) {
        context->cert_until_s =
            sooner(context->cert_until_s, seconds_of(X509_get0_notAfter(one)));
        good = SSL_CTX_add0_chain_cert(context->ssl, one) == 1;
        if (!good) X509_free(one);
    }
    BIO_free(in);
    VX_ENSURE_WHY(found, why, INVALID_ARGUMENT, "no certificate in the file",
                  "--tls-cert %s: expected a certificate in PEM, found none",
                  files->cert);
    VX_ENSURE_WHY(good, why, INVALID_ARGUMENT, "a certificate cannot be used",
                  "--tls-cert %s: the certificate cannot be used: %s", files->cert,
                  openssl_says(said));
    ERR_clear_error(); /* the end of the file is one */
    return VX_OK;
}

static vx_status use_key(const struct vx_tls_files *files, const struct text *text,
                         struct vx_why *why, struct vx_tls_context *context)
{
    bool asked = false;
    char said[128];
    BIO *in = BIO_new_mem_buf(text->at, (int)text->count);
    EVP_PKEY *key = in ? PEM_read_bio_PrivateKey(in, NULL, no_password, &asked) : NULL;
    BIO_free(in);
    VX_ENSURE_WHY(!asked || key, why, INVALID_ARGUMENT, "the key has a password",
                  "--tls-key %s: expected a private key without a password, got an "
                  "encrypted one",
                  files->key);
    const char *full = key ? NULL : vx_tls_keys_full();
    VX_ENSURE_WHY(!full, why, RESOURCE_EXHAUSTED, "no memory for a private key",
                  "--tls-key %s: the key cannot be read: %s", files->key, full);
    VX_ENSURE_WHY(key, why, INVALID_ARGUMENT, "no private key in the file",
                  "--tls-key %s: expected a private key in PEM, found none", files->key);
    bool matches =
        X509_check_private_key(SSL_CTX_get0_certificate(context->ssl), key) == 1;
    bool used = matches && SSL_CTX_use_PrivateKey(context->ssl, key) == 1;
    EVP_PKEY_free(key);
    VX_ENSURE_WHY(matches, why, INVALID_ARGUMENT, "key and certificate do not match",
                  "--tls-key %s: is not the key of the certificate in %s", files->key,
                  files->cert);
    VX_ENSURE_WHY(used, why, INVALID_ARGUMENT, "the key cannot be used",
                  "--tls-key %s: the key cannot be used: %s", files->key,
                  openssl_says(said));
    context->key_open = text->open;
    return VX_OK;
}

/* ------- clients ------- */

static vx_status use_client_ca(const struct vx_tls_files *files, const struct text *text,
                               struct vx_why *why, struct vx_tls_context *context)
{
    X509_STORE *store = SSL_CTX_get_cert_store(context->ssl);
    BIO *in = BIO_new_mem_buf(text->at, (int)text->count);
    X509 *one = NULL;
    i32 count = 0;
    bool good = in != NULL;
    while (good && (one = PEM_read_bio_X509(in, NULL, NULL, NULL))) {
        /* The names help a client to choose among its certificates. */
        good = X509_STORE_add_cert(store, one) == 1 &&
               SSL_CTX_add_client_CA(context->ssl, one) == 1;
        count += good;
        X509_free(one);
    }
    BIO_free(in);
    char said[128];
    VX_ENSURE_WHY(good, why, INVALID_ARGUMENT, "a certificate cannot be used",
                  "--tls-client-ca %s: a certificate cannot be used: %s",
                  files->client_ca, openssl_says(said));
    VX_ENSURE_WHY(count, why, INVALID_ARGUMENT, "no certificate in the file",
                  "--tls-client-ca %s: expected certificates in PEM, found none",
                  files->client_ca);
    ERR_clear_error();
    SSL_CTX_set_verify(context->ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                       NULL);
    return VX_OK;
}

/* Every authority of a client's chain must have a list that is in force: what is missing
 * must not let a revoked client in. */
static vx_status use_client_crl(const struct vx_tls_files *files, const struct text *text,
                                struct vx_why *why, struct vx_tls_context *context)
{
    X509_STORE *store = SSL_CTX_get_cert_store(context->ssl);
    BIO *in = BIO_new_mem_buf(text->at, (int)text->count);
    X509_CRL *one = NULL;
    i32 count = 0;
    bool good = in != NULL;
    while (good && (one = PEM_read_bio_X509_CRL(in, NULL, NULL, NULL))) {
        good = X509_STORE_add_crl(store, one) == 1;
        context->crl_until_s =
            sooner(context->crl_until_s, seconds_of(X509_CRL_get0_nextUpdate(one)));
        count += good;
        X509_CRL_free(one);
    }
    BIO_free(in);
    VX_ENSURE_WHY(
        good && count, why, INVALID_ARGUMENT, "no list of revoked certificates",
        "--tls-client-crl %s: expected lists of revoked certificates (X509 CRL) "
        "in PEM, found none",
        files->client_crl);
    ERR_clear_error();
    X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
    return VX_OK;
}

/* ------- all of it ------- */

static int openssl_on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_bytes,
                           const unsigned char *offered, unsigned int bytes,
                           void *context)
{
    static const unsigned char h2[] = {2, 'h', '2'};
    unsigned char *chosen;
    (void)ssl;
    (void)context;
    if (SSL_select_next_proto(&chosen, out_bytes, h2, sizeof h2, offered, bytes) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

/* Connections of gRPC last for hours, so resuming a session would save nothing worth the
 * keys of tickets, and would pass by the list of revoked certificates. */
static bool set_up(SSL_CTX *ssl)
{
    SSL_CTX_set_options(ssl, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
                                 SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE |
                                 SSL_OP_PRIORITIZE_CHACHA);
    SSL_CTX_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_read_ahead(ssl, 1);
    SSL_CTX_set_default_read_buffer_len(ssl, VX_TLS_IN_BYTES);
    SSL_CTX_set_alpn_select_cb(ssl, openssl_on_alpn, NULL);
    SSL_CTX_set_verify_depth(ssl, CLIENT_CHAIN_DEPTH);
    SSL_CTX_set_max_cert_list(ssl, CLIENT_CHAIN_BYTES_MAX);
    return SSL_CTX_set_num_tickets(ssl, 0) == 1 &&
           SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION) == 1 &&
           SSL_CTX_set_ciphersuites(ssl, SUITES_13) == 1 &&
           SSL_CTX_set_cipher_list(ssl, SUITES_12) == 1 &&
           SSL_CTX_set1_groups_list(ssl, GROUPS) == 1;
}

typedef vx_status (*use_file)(const struct vx_tls_files *files, const struct text *text,
                              struct vx_why *why, struct vx_tls_context *context);

static vx_status use(const struct vx_tls_files *files, struct vx_why *why,
                     struct vx_tls_context *context)
{
    const struct {
        const char *setting, *path;
        use_file with;
    } rows[] = {{"tls-cert", files->cert, use_cert},
                {"tls-key", files->key, use_key},
                {"tls-client-ca", files->client_ca, use_client_ca},
                {"tls-client-crl", files->client_crl, use_client_crl}};
    for (size_t i = 0; i < VX_COUNT(rows); i++) {
        struct text text;
        if (!rows[i].path[0]) continue;
        VX_TRY(text_open(rows[i].setting, rows[i].path, why, &text));
        vx_status status = rows[i].with(files, &text, why, context);
        text_close(&text);
        if (status.fault) return status;
    }
    return VX_OK;
}

vx_status vx_tls_context_base(struct vx_why *why, SSL_CTX **base)
{
    char said[128];
    ERR_clear_error();
    *base = SSL_CTX_new(TLS_server_method());
    if (*base && set_up(*base)) return VX_OK;
    SSL_CTX_free(*base); /* leaves the reason in the list of errors */
    *base = NULL;
    VX_FAIL_WHY(why, RESOURCE_EXHAUSTED, "OpenSSL refused the settings of TLS",
                "OpenSSL refused the settings of TLS: %s", openssl_says(said));
}

vx_status vx_tls_context_open(const struct vx_tls_files *files, struct vx_why *why,
                              struct vx_tls_context *context)
{
    *context = (struct vx_tls_context){.ssl = NULL};
    VX_TRY(vx_tls_context_base(why, &context->ssl));
    vx_status status = use(files, why, context);
    ERR_clear_error();
    if (status.fault) vx_tls_context_close(context);
    return status;
}

void vx_tls_context_close(struct vx_tls_context *context)
{
    SSL_CTX_free(context->ssl); /* sessions have references of their own */
    context->ssl = NULL;
}

void vx_tls_context_log(const struct vx_tls_files *files,
                        const struct vx_tls_context *context, i64 now_s)
{
    if (context->key_open)
        VX_LOG(TLS_KEY_OPEN, VX_LOG_TEXT("why", "others may read the key: chmod o-r"),
               VX_LOG_TEXT("file", files->key));
    VX_LOG(TLS_CERTIFICATE, VX_LOG_TEXT("subject", context->subject),
           VX_LOG_I64("expires_in_s", context->cert_until_s - now_s));
    if (context->cert_until_s < now_s)
        VX_LOG(TLS_EXPIRED, VX_LOG_TEXT("what", "certificate"),
               VX_LOG_TEXT("subject", context->subject),
               VX_LOG_I64("for_s", now_s - context->cert_until_s));
    if (context->crl_until_s && context->crl_until_s < now_s)
        VX_LOG(
            TLS_EXPIRED,
            VX_LOG_TEXT("what", "client_crl: no client can connect until it is renewed"),
            VX_LOG_I64("for_s", now_s - context->crl_until_s));
}
