/* Makes every sync to disk take SLOW_SYNC_MICROSECONDS longer, for a program that preloads it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static void wait_a_moment(void) {
    const char *asked = getenv("SLOW_SYNC_MICROSECONDS");
    long microseconds = asked ? atol(asked) : 0;
    struct timespec pause = {microseconds / 1000000, (microseconds % 1000000) * 1000};
    nanosleep(&pause, NULL);
}

int fsync(int file) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    wait_a_moment();
    return real(file);
}

int fdatasync(int file) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    wait_a_moment();
    return real(file);
}
