// Calls of work() end by a return, an exception or a longjmp. The functions that catch, and those
// that call leaf() afterwards with frames of several sizes, are meant not to be recorded: each call
// of leaf() is an outermost one, or one beneath the calls of work() that are open.
// Prints the number of calls by function and depth: "call work,1 200".
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <pthread.h>
#include <string>
#include "e2e.h"

#define NOINLINE __attribute__((noinline))

static thread_local sigjmp_buf back;
static thread_local int depth;
static thread_local volatile long sink;
static thread_local std::map<std::string, long> calls;

enum Way { RETURN, THROW, THROW_THROUGH_CLEANUP, LONGJMP, SIGLONGJMP, RETHROW, THROW_FAR, WAYS };

extern "C" TRACED void leaf(int at) {
    calls["leaf," + std::to_string(at)]++;
    sink += at;
}

template <int SIZE> NOINLINE void below(int at) {
    volatile char room[SIZE];
    room[sink & 15] = 1;
    leaf(at);
    sink += room[3];
}

static NOINLINE void below_all(int at) {
    below<16>(at);
    below<600>(at);
    below<20000>(at);
}

// A landing pad that is not the one that catches: leaf() is called while the exception flies.
struct Cleanup {
    int at;
    NOINLINE ~Cleanup() { below<300>(at); }
};

extern "C" void work(int n, Way way, int at);

static NOINLINE void with_cleanup(int n, Way way, int at) {
    Cleanup cleanup{at};
    work(n, way, at);
    sink++;
}

extern "C" TRACED void work(int n, Way way, int at) {
    volatile char room[40];
    room[n & 31] = 1;
    calls["work," + std::to_string(at)]++;
    if (n == 0) {
        below<50>(at + 1);
        if (way != RETURN && way != LONGJMP && way != SIGLONGJMP)
            throw way;
        if (way == LONGJMP)
            longjmp(back, 1);
        if (way == SIGLONGJMP)
            siglongjmp(back, 1);
    } else if (way == THROW_THROUGH_CLEANUP) {
        with_cleanup(n - 1, way, at + 1);
    } else {
        work(n - 1, way, at + 1);
    }
    sink += room[3];
}

static NOINLINE void rethrows(int n) {
    try {
        work(n, RETHROW, 0);
    } catch (...) {
        below_all(0);
        throw;
    }
}

// Frames that are larger than the distance of frames which are certainly on one stack.
static NOINLINE void far(int n, Way way, int at) {
    volatile char room[300 << 10];
    room[n & 31] = 1;
    work(n, way, at);
    sink += room[3];
}

static NOINLINE void catches_far(int n, Way way) {
    volatile char room[400 << 10];
    room[n & 31] = 1;
    try {
        far(n, way, 0);
    } catch (Way) {
    }
    below_all(0);
    sink += room[3];
}

static NOINLINE void catches(int n, Way way) {
    if (way == THROW_FAR)
        return catches_far(n, way);
    if (way == LONGJMP || way == SIGLONGJMP) {
        if (!sigsetjmp(back, way == SIGLONGJMP))
            work(n, way, 0);
    } else {
        try {
            if (way == RETHROW)
                rethrows(n);
            else
                work(n, way, 0);
        } catch (Way) {
        }
    }
    below_all(0);
}

static void *turns(void *) {
    for (int n = 0; n < 70; n++)
        catches(n % 5, Way(n % WAYS));
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    for (auto &[call, count] : calls)
        printf("call %s %ld\n", call.c_str(), count);
    pthread_mutex_unlock(&lock);
    return nullptr;
}

int main() {
    puts("ready");
    fflush(stdout);
    getchar();
    pthread_t threads[3];
    for (auto &thread : threads)
        pthread_create(&thread, nullptr, turns, nullptr);
    for (auto &thread : threads)
        pthread_join(thread, nullptr);
    puts("ended");
    fflush(stdout);
    getchar();
}
