/* A kernel that loses pages, for programs that claim to survive one. Preload it (LD_PRELOAD).
 *
 * It models Linux: write() only changes the page cache; fsync() makes the dirty pages of a file durable, and an
 * fsync() that fails marks them clean WITHOUT making them durable. The page cache goes on showing their new content,
 * and later fsyncs succeed, because those pages are no longer dirty; after a power cut they hold the old content.
 * (https://wiki.postgresql.org/wiki/Fsync_Errors; Rebello et al., "Can Applications Recover from fsync Failures?",
 * USENIX ATC 2020.)
 *
 * For each regular file under LOST_PAGES_FOLDER, the folder LOST_PAGES_SHADOW (outside of the former) holds
 *     INODE-BIRTH.durable   what survives a power cut
 *     INODE-BIRTH.dirty     a byte a page: 0 is clean; in its first page, what a truncation did (struct head)
 * Both are shared by all processes and survive their death, as a page cache does. A file's content when it is first
 * seen counts as durable. A power cut: kill the processes, copy each INODE-BIRTH.durable over its file, empty the
 * shadow folder (see `LostPages::power_cut` in server/quire/tests/common/lost_pages.rs).
 *
 * Failures: the file `fail` in the shadow folder holds `SUFFIX SKIP COUNT KEEP`. Of the fsyncs of files whose path
 * ends in SUFFIX, SKIP succeed, COUNT fail with EIO, and all later ones succeed. KEEP percent of the dirty pages
 * reach the disk in spite of the failure. The numbers are counted down in the file.
 *
 * Simplifications: creating, renaming and unlinking are durable at once; a change of length is durable with the next
 * fsync that succeeds; unsynced pages are lost in a power cut, all of them; what is written through a shared mapping
 * or by io_uring is not seen. Real fsyncs are left out, so programs run faster than on a disk. Files up to 4 GiB.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096
#define PAGES (1 << 20)
#define FILES 4096

/* The first page of a .dirty file. */
struct head {
    _Atomic int64_t cut; /* The shortest length since the last successful fsync, plus 1; 0 when it never shrank. */
};

struct tracked {
    uint64_t inode;
    int64_t birth_s;
    uint32_t birth_ns;
    int durable;            /* The shadow's descriptor; -1 for a file outside the folder. */
    struct head *head;
    _Atomic uint8_t *dirty; /* CLEAN, DIRTY, or SYNCING while a page is copied. */
};

enum { CLEAN, DIRTY, SYNCING };

static struct tracked files[FILES];
static int files_used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char folder[PATH_MAX], shadow[PATH_MAX];
static int lock_fd = -1;

#define REAL(type, name, ...) \
    static type (*name)(__VA_ARGS__); \
    if (!name) name = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, __func__)

static ssize_t real_pwrite(int fd, const void *bytes, size_t count, off_t at) {
    static ssize_t (*real)(int, const void *, size_t, off_t);
    if (!real) real = (ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite64");
    return real(fd, bytes, count, at);
}

static int real_ftruncate(int fd, off_t length) {
    static int (*real)(int, off_t);
    if (!real) real = (int (*)(int, off_t))dlsym(RTLD_NEXT, "ftruncate64");
    return real(fd, length);
}

static int real_open(const char *path, int flags, mode_t mode) {
    static int (*real)(const char *, int, ...);
    if (!real) real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    return real(path, flags, mode);
}

static void die(const char *what) {
    fprintf(stderr, "lost_pages: %s: %s\n", what, strerror(errno));
    abort();
}

__attribute__((constructor)) static void start(void) {
    const char *from = getenv("LOST_PAGES_FOLDER"), *to = getenv("LOST_PAGES_SHADOW");
    if (!from || !to) return;
    if (!realpath(from, folder) || !realpath(to, shadow)) die("LOST_PAGES_FOLDER and LOST_PAGES_SHADOW must exist");
    char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/lock", shadow);
    lock_fd = real_open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock_fd < 0) die("cannot make the lock");
}

/* Between processes and, by the mutex, between threads. Freed by the kernel when a process is killed. */
static void take_lock(void) {
    pthread_mutex_lock(&lock);
    while (flock(lock_fd, LOCK_EX) != 0)
        if (errno != EINTR) die("flock");
}

static void free_lock(void) {
    flock(lock_fd, LOCK_UN);
    pthread_mutex_unlock(&lock);
}

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    size_t prefix = strlen(folder);
    return strncmp(path, folder, prefix) == 0 && path[prefix] == '/';
}

/* Copies a page of the file, or what there is of it, to its shadow. */
static void copy_page(int from, int to, int64_t page) {
    char bytes[PAGE];
    ssize_t length = pread(from, bytes, PAGE, page * PAGE);
    if (length < 0) die("cannot read a file back");
    if (length > 0 && real_pwrite(to, bytes, length, page * PAGE) != length) die("cannot write a shadow");
}

/* A descriptor to read the file by. Opens another one only if it must, because closing that one would take away all
 * of the process's POSIX locks on the file. */
static int readable(int fd) {
    if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_WRONLY) return fd;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int again = real_open(link, O_RDONLY | O_CLOEXEC, 0);
    if (again < 0) die("cannot open a file again to read it");
    return again;
}

static void begin_shadow(struct tracked *file, int fd, int64_t length) {
    char name[PATH_MAX + 64];
    snprintf(name, sizeof name, "%s/%lu-%ld.%09u.durable", shadow, file->inode, file->birth_s, file->birth_ns);
    file->durable = real_open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    strcpy(strrchr(name, '.'), ".dirty");
    int dirty = real_open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct stat made;
    if (file->durable < 0 || dirty < 0 || fstat(dirty, &made) != 0) die("cannot make a shadow");
    if (made.st_size == 0) {
        int from = readable(fd);
        for (int64_t page = 0; page * PAGE < length; page++) copy_page(from, file->durable, page);
        if (from != fd) close(from);
        if (real_ftruncate(file->durable, length) != 0) die("cannot give a shadow its length");
        /* Last, because its length tells others that the shadow is complete. */
        if (real_ftruncate(dirty, PAGE + PAGES) != 0) die("cannot make a map of dirty pages");
    }
    char *map = mmap(NULL, PAGE + PAGES, PROT_READ | PROT_WRITE, MAP_SHARED, dirty, 0);
    if (map == MAP_FAILED) die("cannot map the dirty pages");
    close(dirty);
    file->head = (struct head *)map;
    file->dirty = (_Atomic uint8_t *)(map + PAGE);
}

/* The state of a descriptor's file; NULL for what is no regular file under the folder. */
static struct tracked *track(int fd) {
    struct statx is;
    if (!folder[0] || statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &is) != 0) return NULL;
    if (!S_ISREG(is.stx_mode)) return NULL;
    int saved = errno;
    pthread_mutex_lock(&lock);
    struct tracked *file = NULL;
    for (int place = 0; place < files_used && !file; place++) {
        struct tracked *known = &files[place];
        if (known->inode == is.stx_ino && known->birth_s == is.stx_btime.tv_sec &&
            known->birth_ns == is.stx_btime.tv_nsec)
            file = known;
    }
    pthread_mutex_unlock(&lock);
    if (!file) {
        char path[PATH_MAX];
        int inside = path_of(fd, path);
        take_lock();
        if (files_used == FILES) die("too many files");
        /* Two threads that see a file first make two entries for it, which does no harm. */
        file = &files[files_used];
        *file = (struct tracked){is.stx_ino, is.stx_btime.tv_sec, is.stx_btime.tv_nsec, -1, NULL, NULL};
        if (inside) begin_shadow(file, fd, is.stx_size);
        files_used++;
        free_lock();
    }
    errno = saved;
    return file->durable < 0 ? NULL : file;
}

static void soil(struct tracked *file, int64_t from, int64_t count) {
    if (!file || count <= 0) return;
    if (from < 0 || (from + count - 1) / PAGE >= PAGES) die("a file of more than 4 GiB");
    for (int64_t page = from / PAGE; page <= (from + count - 1) / PAGE; page++) file->dirty[page] = DIRTY;
}

static int64_t place_of(int fd) {
    struct stat is;
    if (fcntl(fd, F_GETFL) & O_APPEND) return fstat(fd, &is) == 0 ? is.st_size : 0;
    off_t place = lseek(fd, 0, SEEK_CUR);
    return place < 0 ? 0 : place;
}

/* Soils before the write too: the process may be killed right after it. */
#define SOILING(place, size, call) \
    struct tracked *file = track(fd); \
    if (!file) return call; \
    int64_t at_byte = (place), size_bytes = (size); \
    soil(file, at_byte, size_bytes); \
    ssize_t written = call; \
    soil(file, at_byte, written); \
    return written

static int64_t bytes_in(const struct iovec *parts, int count) {
    int64_t sum = 0;
    for (int place = 0; place < count; place++) sum += parts[place].iov_len;
    return sum;
}

ssize_t write(int fd, const void *bytes, size_t count) {
    REAL(ssize_t, real, int, const void *, size_t);
    SOILING(place_of(fd), count, real(fd, bytes, count));
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(ssize_t, real, int, const struct iovec *, int);
    SOILING(place_of(fd), bytes_in(parts, count), real(fd, parts, count));
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
    SOILING(at, count, real_pwrite(fd, bytes, count, at));
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off_t at) {
    SOILING(at, count, real_pwrite(fd, bytes, count, at));
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    REAL(ssize_t, real, int, const struct iovec *, int, off_t);
    SOILING(at, bytes_in(parts, count), real(fd, parts, count, at));
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t at) {
    REAL(ssize_t, real, int, const struct iovec *, int, off_t);
    SOILING(at, bytes_in(parts, count), real(fd, parts, count, at));
}

ssize_t copy_file_range(int from, off_t *from_at, int fd, off_t *at, size_t count, unsigned flags) {
    REAL(ssize_t, real, int, off_t *, int, off_t *, size_t, unsigned);
    /* Ends at the end of the source, so that what it will have written is known only afterwards. */
    SOILING(at ? *at : place_of(fd), 0, real(from, from_at, fd, at, count, flags));
}

static int cut(int fd, off_t length) {
    struct tracked *file = track(fd);
    struct stat is;
    if (file && fstat(fd, &is) == 0 && length < is.st_size) {
        take_lock();
        int64_t before = file->head->cut;
        if (before == 0 || length + 1 < before) file->head->cut = length + 1;
        /* Zeros up to the end of the last page are written, too. */
        if (length % PAGE) soil(file, length, 1);
        free_lock();
    }
    return real_ftruncate(fd, length);
}

int ftruncate(int fd, off_t length) { return cut(fd, length); }
int ftruncate64(int fd, off_t length) { return cut(fd, length); }

/* Opens without O_TRUNC, so that the file can be looked at before it is emptied. */
static int open_then_cut(int fd, int flags) {
    if (fd >= 0 && flags & O_TRUNC && track(fd) == NULL) {
        if (real_ftruncate(fd, 0) == 0 || errno == EINVAL) return fd;
    } else if (fd < 0 || !(flags & O_TRUNC) || cut(fd, 0) == 0) {
        return fd;
    }
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

#define MODE() \
    mode_t mode = 0; \
    if (flags & (O_CREAT | __O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

int open(const char *path, int flags, ...) {
    MODE();
    return open_then_cut(real_open(path, flags & ~O_TRUNC, mode), flags);
}

int open64(const char *path, int flags, ...) {
    MODE();
    return open_then_cut(real_open(path, flags & ~O_TRUNC, mode), flags);
}

int openat(int at, const char *path, int flags, ...) {
    REAL(int, real, int, const char *, int, ...);
    MODE();
    return open_then_cut(real(at, path, flags & ~O_TRUNC, mode), flags);
}

int openat64(int at, const char *path, int flags, ...) {
    REAL(int, real, int, const char *, int, ...);
    MODE();
    return open_then_cut(real(at, path, flags & ~O_TRUNC, mode), flags);
}

/* Whether this fsync is to fail, by the file `fail`; `keep` is the percentage of pages that are written all the
 * same. Under the lock. */
static int fails(const char *path, int *keep) {
    char name[PATH_MAX + 8], suffix[256];
    long skip, count;
    snprintf(name, sizeof name, "%s/fail", shadow);
    FILE *rule = fopen(name, "r+");
    if (!rule) return 0;
    int understood = fscanf(rule, "%255s %ld %ld %d", suffix, &skip, &count, keep);
    size_t length = strlen(path), tail = understood == 4 ? strlen(suffix) : length + 1;
    int fail = 0;
    if (tail <= length && strcmp(path + length - tail, suffix) == 0) {
        fail = skip == 0 && count > 0;
        if (skip > 0) skip--;
        else if (count > 0) count--;
        rewind(rule);
        /* Of constant length, so that a reader never sees the tail of an older line. */
        fprintf(rule, "%s %010ld %010ld %03d\n", suffix, skip, count, *keep);
    }
    fclose(rule);
    return fail;
}

static int sync_file(int fd, int (*real)(int)) {
    char path[PATH_MAX];
    struct tracked *file = track(fd);
    if (!folder[0] || !path_of(fd, path)) return real(fd);
    int keep = 100;
    take_lock();
    int fail = fails(path, &keep);
    struct stat is;
    if (file && fstat(fd, &is) == 0) {
        int from = readable(fd);
        int64_t cut_to = file->head->cut;
        if (!fail) {
            if (cut_to > 0 && real_ftruncate(file->durable, cut_to - 1) != 0) die("cannot cut a shadow");
            file->head->cut = 0;
        }
        for (int64_t page = 0; page * PAGE < is.st_size; page++) {
            if (file->dirty[page] == CLEAN) continue;
            file->dirty[page] = SYNCING;
            if (!fail || random() % 100 < keep) copy_page(from, file->durable, page);
            uint8_t syncing = SYNCING;
            atomic_compare_exchange_strong(&file->dirty[page], &syncing, CLEAN);
        }
        if (!fail && real_ftruncate(file->durable, is.st_size) != 0) die("cannot give a shadow its length");
        if (from != fd) close(from);
    }
    free_lock();
    if (fail) errno = EIO;
    return fail ? -1 : 0;
}

int fsync(int fd) {
    REAL(int, real, int);
    return sync_file(fd, real);
}

int fdatasync(int fd) {
    REAL(int, real, int);
    return sync_file(fd, real);
}
