/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/jit/jit.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"
#include "engine/base/process/thread.h"
#include "engine/gpu/jit/cache.h"
#include "engine/gpu/jit/jit_amd.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define JIT_MAGIC 0x76784a54u /* "vxJT" */

/* Size of the hash table of binaries: twice their maximum, so that searches are short. */
#define PLACES (VX_JIT_IMAGES_MAX * 2)

struct entry {
    u8 key[VX_SHA256_BYTES];
    struct vx_jit_unit unit;
    struct vx_tile tile; /* a copy of the wanted one, which unit points at */
    struct vx_binary binary;
    bool ready, from_cache;
    u32 listed; /* the number of the last build that listed it */
};

/* A kernel's source with all it includes, collected at its first use. */
struct source {
    const char *name; /* the spec's, static */
    struct vx_jit_closure closure;
    u8 digest[VX_SHA256_BYTES];
    struct source *next;
};

struct vx_jit {
    u32 magic;
    char arch[16];
    i32 threads;
    struct vx_jit_texts texts;
    struct source *sources;
    struct vx_compiler compiler;
    struct vx_why compiler_why; /* why there is no compiler */
    struct vx_cache *cache;
    /* The compilers whose cached binaries may be used: ours, or all if we have none. */
    char words[VX_JIT_COMPILERS_MAX][VX_COMPILER_WORD_BYTES];
    i32 words_count;
    u32 builds; /* so far */
    /* vx_jit_counts_get reads them on any thread. */
    atomic_llong compiled, cached, build_ns;
    i32 entries_count;
    struct entry *entries[PLACES]; /* by key, open addressing */
};

/* --- open and close --- */

static i32 threads_of(i32 wanted)
{
    long cores = wanted > 0 ? wanted : sysconf(_SC_NPROCESSORS_ONLN);
    if (cores < 1) cores = 1;
    return cores > VX_JIT_THREADS_MAX ? VX_JIT_THREADS_MAX : (i32)cores;
}

static vx_status open_parts(struct vx_jit *jit, const struct vx_jit_options *options,
                            struct vx_why *why)
{
    size_t length = strlen(options->arch);
    VX_ENSURE_WHY(length && length < sizeof jit->arch, why, INVALID_ARGUMENT,
                  "no such GPU architecture", "\"%.32s\": no such GPU architecture",
                  options->arch);
    memcpy(jit->arch, options->arch, length + 1);
    jit->threads = threads_of(options->threads);
    VX_TRY(vx_jit_texts_open(options->texts, why, &jit->texts));
    VX_TRY(vx_cache_open(options->directory, options->cache_bytes, why, &jit->cache));
    if (!strcmp(jit->arch, "fake")) {
        vx_compiler_fake(&jit->compiler);
    } else {
        /* No error yet: all binaries may be in the cache. */
        vx_status none =
            vx_amd_arch(jit->arch)
                ? vx_compiler_open_amd(options->compiler, &jit->compiler_why,
                                       &jit->compiler)
                : vx_compiler_open(options->compiler, &jit->compiler_why, &jit->compiler);
        if (none.fault) jit->words_count = vx_cache_words(jit->cache, jit->words);
    }
    if (jit->compiler.word[0]) {
        memcpy(jit->words[0], jit->compiler.word, sizeof jit->words[0]);
        jit->words_count = 1;
    }
    return VX_OK;
}

vx_status vx_jit_open(const struct vx_jit_options *options, struct vx_why *why,
                      struct vx_jit **jit)
{
    *jit = NULL;
    struct vx_jit *made = vx_alloc_zero(sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for the kernel compiler");
    made->magic = JIT_MAGIC;
    vx_status status = open_parts(made, options, why);
    if (status.fault)
        vx_jit_close(&made);
    else
        *jit = made;
    return status;
}

void vx_jit_close(struct vx_jit **jit)
{
    struct vx_jit *it = *jit;
    *jit = NULL;
    if (!it) return;
    VX_ASSERT(it->magic == JIT_MAGIC);
    it->magic = 0;
    for (i32 i = 0; i < PLACES; i++) {
        if (!it->entries[i]) continue;
        vx_binary_close(&it->entries[i]->binary);
        vx_free(it->entries[i]);
    }
    while (it->sources) {
        struct source *next = it->sources->next;
        vx_free(it->sources);
        it->sources = next;
    }
    vx_cache_close(&it->cache);
    vx_jit_texts_close(&it->texts);
    vx_free(it);
}

/* --- from what is wanted to an entry --- */

static vx_status source_get(struct vx_jit *jit, const char *name, struct vx_why *why,
                            const struct source **source)
{
    for (*source = jit->sources; *source; *source = (*source)->next)
        if (!strcmp((*source)->name, name)) return VX_OK;
    struct source *made = vx_alloc_zero(sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for a kernel source");
    vx_status status = vx_jit_closure_build(&jit->texts, name, why, &made->closure);
    if (status.fault) {
        vx_free(made);
        return status;
    }
    made->name = name;
    vx_jit_closure_hash(&made->closure, made->digest);
    made->next = jit->sources;
    jit->sources = made;
    *source = made;
    return VX_OK;
}

void vx_jit_source_hash(const struct vx_jit *jit, const struct vx_kernel_spec *spec,
                        char hash[65])
{
    struct vx_jit_closure closure;
    u8 digest[VX_SHA256_BYTES] = {0};
    VX_ASSERT(jit->magic == JIT_MAGIC);
    /* A kernel without a source has the hash 0, for which there is no tuning result. */
    if (!vx_jit_closure_build(&jit->texts, spec->source, NULL, &closure).fault)
        vx_jit_closure_hash(&closure, digest);
    vx_sha256_hex(digest, hash);
}

/* The place of the entry with this key, or the empty place where it belongs. */
static struct entry **place_of(struct vx_jit *jit, const u8 key[VX_SHA256_BYTES])
{
    u32 place;
    memcpy(&place, key, sizeof place);
    for (;; place++) {
        struct entry **at = &jit->entries[place % PLACES];
        if (!*at || !memcmp((*at)->key, key, VX_SHA256_BYTES)) return at;
    }
}

static vx_status entry_get(struct vx_jit *jit, const struct vx_jit_wanted *wanted,
                           struct vx_why *why, struct entry **entry)
{
    const struct source *source;
    u8 key[VX_SHA256_BYTES];
    VX_ASSERT(jit->magic == JIT_MAGIC);
    VX_ASSERT(wanted->tile || !wanted->spec->macros_count);
    if (wanted->spec->types)
        VX_ASSERT(wanted->spec->types >> wanted->type & 1);
    else
        VX_ASSERT(!wanted->type);
    VX_TRY(source_get(jit, wanted->spec->source, why, &source));
    struct vx_jit_unit unit = {jit->arch, &source->closure, *wanted};
    vx_jit_key_make(&unit, source->digest, key);
    struct entry **at = place_of(jit, key);
    if (!*at) {
        VX_ENSURE(jit->entries_count < VX_JIT_IMAGES_MAX, RESOURCE_EXHAUSTED,
                  "too many kernel binaries");
        struct entry *made = vx_alloc_zero(sizeof *made);
        VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for a kernel binary");
        memcpy(made->key, key, sizeof made->key);
        made->unit = unit;
        if (wanted->tile) {
            made->tile = *wanted->tile;
            made->unit.wanted.tile = &made->tile;
        }
        *at = made;
        jit->entries_count++;
    }
    *entry = *at;
    return VX_OK;
}

/* --- from an entry to its binary --- */

static vx_status entry_build(struct vx_jit *jit, struct entry *entry, struct vx_why *why)
{
    char name[VX_CACHE_NAME_BYTES];
    for (i32 i = 0; i < jit->words_count && !entry->from_cache; i++) {
        vx_cache_name_make(entry->key, jit->words[i], name);
        entry->from_cache = vx_cache_get(jit->cache, name, &entry->binary);
    }
    if (entry->from_cache) return VX_OK;
    VX_ENSURE_WHY(jit->compiler.word[0], why, UNAVAILABLE,
                  "a kernel is not in the cache and there is no compiler",
                  "%s for %s is not in the kernel cache; %s",
                  entry->unit.wanted.spec->source, jit->arch, jit->compiler_why.text);
    VX_TRY(vx_compiler_run(&jit->compiler, &entry->unit, why, &entry->binary));
    vx_cache_put(jit->cache, name, &entry->binary);
    return VX_OK;
}

/* Entries that several threads build; `lock` guards the fields below it. */
struct build {
    struct vx_jit *jit;
    struct entry **entries;
    i32 count;
    atomic_int next;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    i32 done; /* entries that were built, failed, or were skipped after a failure */
    i32 compiled, cached;
    vx_status status; /* the first failure */
    struct vx_why why;
};

static void build_run(void *context)
{
    struct build *build = context;
    for (;;) {
        i32 i = atomic_fetch_add(&build->next, 1);
        if (i >= build->count) return;
        pthread_mutex_lock(&build->lock);
        bool stop = build->status.fault != NULL;
        pthread_mutex_unlock(&build->lock);
        struct vx_why why = {""};
        struct entry *entry = build->entries[i];
        vx_status status = stop ? VX_OK : entry_build(build->jit, entry, &why);
        pthread_mutex_lock(&build->lock);
        entry->ready = !stop && !status.fault;
        build->compiled += entry->ready && !entry->from_cache;
        build->cached += entry->ready && entry->from_cache;
        if (status.fault && !build->status.fault) {
            build->status = status;
            build->why = why;
        }
        build->done++;
        pthread_cond_signal(&build->moved);
        pthread_mutex_unlock(&build->lock);
    }
}

/* Waits for the build and reports its progress on the caller's thread. */
static void build_watch(struct build *build, i64 before,
                        const struct vx_progress *progress)
{
    pthread_mutex_lock(&build->lock);
    for (i32 told = -1; told < build->count;) {
        while (build->done == told) pthread_cond_wait(&build->moved, &build->lock);
        told = build->done;
        bool good = !build->status.fault;
        pthread_mutex_unlock(&build->lock);
        if (progress && progress->report && good)
            progress->report(progress->context, before + told, before + build->count);
        pthread_mutex_lock(&build->lock);
    }
    pthread_mutex_unlock(&build->lock);
}

static vx_status build_spread(struct build *build, i64 before,
                              const struct vx_progress *progress, struct vx_why *why)
{
    pthread_t threads[VX_JIT_THREADS_MAX];
    i32 opened = 0;
    i64 begin_ns = vx_clock_ns();
    pthread_mutex_init(&build->lock, NULL);
    pthread_cond_init(&build->moved, NULL);
    while (opened < build->jit->threads && opened < build->count &&
           !vx_thread_open(&threads[opened], VX_ROLE_COMPILE, build_run, build).fault)
        opened++;
    if (!opened) build_run(build); /* no thread could be started: build here */
    build_watch(build, before, progress);
    for (i32 i = 0; i < opened; i++) pthread_join(threads[i], NULL);
    pthread_cond_destroy(&build->moved);
    pthread_mutex_destroy(&build->lock);
    i64 ns = vx_clock_ns() - begin_ns;
    atomic_fetch_add(&build->jit->compiled, build->compiled);
    atomic_fetch_add(&build->jit->cached, build->cached);
    atomic_fetch_add(&build->jit->build_ns, ns);
    if (build->compiled) {
        vx_cache_trim(build->jit->cache);
        VX_LOG(KERNEL_BUILD, VX_LOG_I64("binaries", build->compiled),
               VX_LOG_TEXT("arch", build->jit->arch),
               VX_LOG_TEXT("compiler", build->jit->compiler.word),
               VX_LOG_I64("threads", opened), VX_LOG_I64("ms", ns / VX_NS_PER_MS));
    }
    if (build->status.fault && why) *why = build->why;
    return build->status;
}

vx_status vx_jit_build(struct vx_jit *jit, const struct vx_jit_wanted *wanted, i32 count,
                       const struct vx_progress *progress, struct vx_why *why)
{
    if (!count) return VX_OK;
    struct build build = {.jit = jit};
    build.entries = vx_alloc((size_t)count * sizeof(struct entry *));
    VX_ENSURE(build.entries, RESOURCE_EXHAUSTED, "no memory for a list of kernels");
    vx_status status = VX_OK;
    u32 number = ++jit->builds;
    i64 before = 0; /* binaries that are ready already */
    for (i32 i = 0; i < count && !status.fault; i++) {
        struct entry *entry = NULL;
        status = entry_get(jit, &wanted[i], why, &entry);
        if (status.fault) break;
        if (entry->listed == number) continue; /* wanted twice */
        entry->listed = number;
        if (entry->ready)
            before++;
        else
            build.entries[build.count++] = entry;
    }
    if (!status.fault && build.count)
        status = build_spread(&build, before, progress, why);
    vx_free(build.entries);
    return status;
}

void vx_jit_counts_get(const struct vx_jit *jit, struct vx_jit_counts *counts)
{
    VX_ASSERT(jit->magic == JIT_MAGIC);
    *counts = (struct vx_jit_counts){
        .compiled = atomic_load(&jit->compiled),
        .cached = atomic_load(&jit->cached),
        .build_ns = atomic_load(&jit->build_ns),
    };
}

vx_status vx_jit_get(struct vx_jit *jit, const struct vx_jit_wanted *wanted,
                     struct vx_why *why, struct vx_jit_image *image)
{
    struct entry *entry = NULL;
    VX_TRY(entry_get(jit, wanted, why, &entry));
    if (!entry->ready) VX_TRY(vx_jit_build(jit, wanted, 1, NULL, why));
    *image = (struct vx_jit_image){
        .data = vx_binary_image(&entry->binary),
        .bytes = entry->binary.image_bytes,
        .log = vx_binary_log(&entry->binary),
        .from_cache = entry->from_cache,
    };
    return VX_OK;
}
