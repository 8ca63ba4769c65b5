/* A disk that records what is done to it, and fails on request. Preload it (LD_PRELOAD) into programs whose files are to
 * be judged.
 *
 * For the regular files of CAMPAIGN_FOLDER, without SQLite's `-shm`, every write, change of length and flush is appended
 * to the file CAMPAIGN_TRACE in the order in which the kernel saw it, so that a reader can make of it what any disk
 * would have kept (see trace.rs). Flushes themselves are left out. One lock orders all threads and processes; it ends
 * with the process that holds it.
 *
 * The trace begins with a struct head, whose rule the campaign writes before the programs start. Calls that fit the
 * rule's mask and the ending of the path are counted in all processes; from number `at` on, `count` of them fail.
 *
 * Not seen: writes through mappings and by io_uring. Creating, renaming and unlinking are not recorded and count as
 * durable at once.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define TRACE_BYTES (256l << 20)
#define DESCRIPTORS 4096

enum { OPEN = 1, READ = 2, WRITE = 4, SYNC = 8, CUT = 16 };
enum { POWER_OFF = 1, POWER_OFF_AFTER, KILL, KILL_AFTER, INPUT_OUTPUT, NO_SPACE, SHORT, FLIP, NO_DESCRIPTORS };

struct head {
    uint64_t used; /* Bytes of the trace, this head included. */
    uint32_t off;  /* 1 once the power is off. */
    uint32_t seen; /* Calls that fit the rule. */
    uint32_t hits; /* Calls that failed. */
    uint32_t mask, at, count, fault, bit;
    char ending[64];
};

struct record {
    uint32_t kind; /* WRITE, SYNC or CUT. */
    uint32_t failed;
    uint64_t inode;
    int64_t birth_s, birth_ns;
    uint64_t at;    /* Of CUT, the new length. */
    uint64_t bytes; /* Those of WRITE follow, filled up to 8. */
};

/* An open descriptor: `known` is 0 for one never looked at, 1 for one that is recorded, 2 for any other. */
static struct { uint8_t known; uint64_t inode; int64_t birth_s, birth_ns; char ending[64]; } opened[DESCRIPTORS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct head *head;
static char folder[PATH_MAX];
static int trace = -1;

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static void die(const char *what) {
    fprintf(stderr, "disk.c: %s: %s\n", what, strerror(errno));
    abort();
}

__attribute__((constructor)) static void start(void) {
    const char *from = getenv("CAMPAIGN_FOLDER"), *to = getenv("CAMPAIGN_TRACE");
    if (!from || !to) return;
    REAL(int, "open64", const char *, int, ...);
    if (!realpath(from, folder) || (trace = real(to, O_RDWR | O_CLOEXEC)) < 0) die("no folder, or no trace");
    head = mmap(NULL, TRACE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, trace, 0);
    if (head == MAP_FAILED) die("cannot map the trace");
}

static void lock(void) {
    pthread_mutex_lock(&mutex);
    while (flock(trace, LOCK_EX) != 0)
        if (errno != EINTR) die("flock");
    if (head->off) raise(SIGKILL);
}

static void unlock(void) {
    flock(trace, LOCK_UN);
    pthread_mutex_unlock(&mutex);
}

/* True for a descriptor whose calls are recorded. */
static int recorded(int fd) {
    if (!head || fd < 0 || fd >= DESCRIPTORS) return 0;
    if (opened[fd].known == 0) {
        char link[64], path[PATH_MAX];
        struct statx is;
        int saved = errno;
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, path, PATH_MAX - 1);
        path[length < 0 ? 0 : length] = 0;
        size_t prefix = strlen(folder), end = strlen(path);
        uint8_t known = 2;
        if (strncmp(path, folder, prefix) == 0 && path[prefix] == '/' && strcmp(path + end - 4, "-shm") != 0 &&
            statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &is) == 0 && S_ISREG(is.stx_mode)) {
            opened[fd].inode = is.stx_ino;
            opened[fd].birth_s = is.stx_btime.tv_sec;
            opened[fd].birth_ns = is.stx_btime.tv_nsec;
            snprintf(opened[fd].ending, 64, "%s", path + (end > 63 ? end - 63 : 0));
            known = 1;
        }
        /* Last, because other threads may use the descriptor, too. */
        opened[fd].known = known;
        errno = saved;
    }
    return opened[fd].known == 1;
}

/* The fault of this call; 0 is none. Under the lock. */
static int fault(int kind, const char *path) {
    size_t length = strlen(path), tail = strlen(head->ending);
    if (!(head->mask & kind) || tail > length || strcmp(path + length - tail, head->ending) != 0) return 0;
    uint32_t number = head->seen++;
    if (number < head->at || number - head->at >= head->count) return 0;
    head->hits++;
    if (head->fault == POWER_OFF) head->off = 1;
    if (head->fault == POWER_OFF || head->fault == KILL) raise(SIGKILL);
    return head->fault;
}

/* Appends a record. Under the lock. */
static void record(int kind, int fd, uint64_t at, const void *bytes, uint64_t count, int failed) {
    uint64_t space = sizeof(struct record) + (bytes ? (count + 7) / 8 * 8 : 0);
    if (head->used + space > TRACE_BYTES) die("the trace is full");
    struct record *to = (struct record *)((char *)head + head->used);
    *to = (struct record){kind, failed, opened[fd].inode, opened[fd].birth_s, opened[fd].birth_ns, at, count};
    if (bytes) memcpy(to + 1, bytes, count);
    head->used += space;
}

/* After a call that was done. Under the lock. */
static void after(int what) {
    if (what == POWER_OFF_AFTER) head->off = 1;
    if (what == POWER_OFF_AFTER || what == KILL_AFTER) raise(SIGKILL);
}

static ssize_t failing(int number) {
    unlock();
    errno = number;
    return -1;
}

static ssize_t write_at(int fd, const void *bytes, size_t count, off_t at) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off_t);
    if (!recorded(fd)) return real(fd, bytes, count, at);
    lock();
    int what = fault(WRITE, opened[fd].ending);
    if (what == INPUT_OUTPUT) return failing(EIO);
    if (what == NO_SPACE) return failing(ENOSPC);
    struct stat is;
    if (fcntl(fd, F_GETFL) & O_APPEND && fstat(fd, &is) == 0) at = is.st_size;
    /* A part of it, also of a write after which the process ends. */
    if (count > 1 && (what == SHORT || what == POWER_OFF_AFTER || what == KILL_AFTER)) count = 1 + head->bit % (count - 1);
    ssize_t written = real(fd, bytes, count, at);
    if (written > 0) record(WRITE, fd, at, bytes, written, 0);
    after(what);
    unlock();
    return written;
}

static ssize_t read_at(int fd, void *bytes, size_t count, off_t at) {
    REAL(ssize_t, "pread64", int, void *, size_t, off_t);
    if (!recorded(fd) || !(head->mask & READ)) return real(fd, bytes, count, at);
    lock();
    int what = fault(READ, opened[fd].ending);
    if (what == INPUT_OUTPUT) return failing(EIO);
    if (what == SHORT && count > 1) count = 1 + head->bit % (count - 1);
    ssize_t got = real(fd, bytes, count, at);
    if (what == FLIP && got > 0) ((uint8_t *)bytes)[head->bit / 8 % got] ^= 1 << head->bit % 8;
    unlock();
    return got;
}

/* Moves a descriptor's place; returns the new one. */
static off_t moved(int fd, off_t by) {
    REAL(off_t, "lseek64", int, off_t, int);
    return real(fd, by, SEEK_CUR);
}

ssize_t write(int fd, const void *bytes, size_t count) {
    REAL(ssize_t, "write", int, const void *, size_t);
    if (!recorded(fd)) return real(fd, bytes, count);
    ssize_t written = write_at(fd, bytes, count, moved(fd, 0));
    if (written > 0) moved(fd, written);
    return written;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    if (!recorded(fd)) return real(fd, parts, count);
    ssize_t sum = 0;
    for (int part = 0; part < count; part++) {
        ssize_t written = write(fd, parts[part].iov_base, parts[part].iov_len);
        if (written < 0) return sum > 0 ? sum : written;
        sum += written;
        if ((size_t)written < parts[part].iov_len) break;
    }
    return sum;
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) { return write_at(fd, bytes, count, at); }
ssize_t pwrite64(int fd, const void *bytes, size_t count, off_t at) { return write_at(fd, bytes, count, at); }
ssize_t pread(int fd, void *bytes, size_t count, off_t at) { return read_at(fd, bytes, count, at); }
ssize_t pread64(int fd, void *bytes, size_t count, off_t at) { return read_at(fd, bytes, count, at); }

ssize_t read(int fd, void *bytes, size_t count) {
    REAL(ssize_t, "read", int, void *, size_t);
    if (!recorded(fd) || !(head->mask & READ)) return real(fd, bytes, count);
    ssize_t got = read_at(fd, bytes, count, moved(fd, 0));
    if (got > 0) moved(fd, got);
    return got;
}

static int cut(int fd, off_t length) {
    REAL(int, "ftruncate64", int, off_t);
    if (!recorded(fd)) return real(fd, length);
    lock();
    int what = fault(CUT, opened[fd].ending);
    if (what == INPUT_OUTPUT) return failing(EIO);
    if (what == NO_SPACE) return failing(ENOSPC);
    int done = real(fd, length);
    if (done == 0) record(CUT, fd, length, NULL, 0, 0);
    after(what);
    unlock();
    return done;
}

int ftruncate(int fd, off_t length) { return cut(fd, length); }
int ftruncate64(int fd, off_t length) { return cut(fd, length); }

static int sync_file(int fd, const char *name) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    if (!recorded(fd)) return head ? 0 : real(fd);
    lock();
    int what = fault(SYNC, opened[fd].ending);
    int fails = what == INPUT_OUTPUT || what == NO_SPACE;
    record(SYNC, fd, 0, NULL, 0, fails);
    if (fails) return failing(what == INPUT_OUTPUT ? EIO : ENOSPC);
    after(what);
    unlock();
    return 0;
}

int fsync(int fd) { return sync_file(fd, "fsync"); }
int fdatasync(int fd) { return sync_file(fd, "fdatasync"); }

/* Opens without O_TRUNC, and cuts the file then. To open `die` in the folder ends the process as a crash does. */
static int open_at(int at, const char *path, int flags, mode_t mode) {
    REAL(int, "openat64", int, const char *, int, ...);
    size_t prefix = strlen(folder);
    if (head && strncmp(path, folder, prefix) == 0 && strcmp(path + prefix, "/die") == 0) {
        /* No other thread is between a call and its record. */
        lock();
        raise(SIGKILL);
    }
    if (head && strncmp(path, folder, prefix) == 0 && strcmp(path + strlen(path) - 4, "-shm") != 0) {
        lock();
        int what = fault(OPEN, path);
        if (what == NO_DESCRIPTORS) return failing(EMFILE);
        if (what == INPUT_OUTPUT) return failing(EIO);
        after(what);
        unlock();
    }
    int fd = real(at, path, flags & ~O_TRUNC, mode);
    if (fd < 0) return fd;
    if (fd < DESCRIPTORS) opened[fd].known = 0;
    if (flags & O_TRUNC && cut(fd, 0) != 0 && errno != EINVAL) {
        int saved = errno;
        close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

#define MODE() \
    mode_t mode = 0; \
    if (flags & (O_CREAT | __O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

int open(const char *path, int flags, ...) { MODE(); return open_at(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(); return open_at(AT_FDCWD, path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE(); return open_at(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE(); return open_at(at, path, flags, mode); }

int close(int fd) {
    REAL(int, "close", int);
    if (fd >= 0 && fd < DESCRIPTORS) opened[fd].known = 0;
    return real(fd);
}
