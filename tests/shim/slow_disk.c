/* A disk whose syncs take long, for programs that should stay responsive on one. Preload it (LD_PRELOAD): every fsync() and
 * fdatasync() takes SLOW_DISK_MS milliseconds more.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static void wait_long(void) {
    const char *told = getenv("SLOW_DISK_MS");
    long ms = told ? atol(told) : 0;
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0) {
    }
}

int fsync(int file) {
    wait_long();
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return real(file);
}

int fdatasync(int file) {
    wait_long();
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return real(file);
}
