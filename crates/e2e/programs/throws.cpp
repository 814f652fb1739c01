// Exceptions through 20 frames in 4 threads, rethrown, across tail calls, stopped by noexcept.
#include "e2e.h"
#include <csignal>
#include <exception>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <unistd.h>

COUNTED(deep); COUNTED(again); COUNTED(tail); COUNTED(thrower); COUNTED(catcher); COUNTED(destroyed);
struct Guard {
    long n;
    explicit Guard(long n) : n(n) {}
    UNTRACED ~Guard() { HIT(destroyed); }
};
extern "C" {
TRACED long thrower(long n) {
    HIT(thrower);
    if (n % 3 == 0) throw std::runtime_error(std::to_string(n));
    if (n % 3 == 1) throw n;
    return n;
}
TRACED long tail(long n) { HIT(tail); return thrower(n); }
TRACED long deep(long n, int depth) {
    HIT(deep);
    Guard guard(n);
    long r = depth ? deep(n, depth - 1) : tail(n);
    KEEP(&guard);
    return r + 1;
}
TRACED long again(long n) {
    HIT(again);
    try { return deep(n, 19); }
    catch (const std::exception &e) { KEEP(&e); throw; }
    catch (long) { throw std::string("long"); }
}
TRACED long catcher(long n) {
    HIT(catcher);
    try { return again(n); }
    catch (const std::runtime_error &e) { return -atol(e.what()); }
    catch (const std::string &s) { return (long)s.size(); }
}
TRACED long stopped(long n) noexcept { return deep(n, 3); }
}
static void *thread(void *seed) {
    long sum = 0;
    for (long i = 0; i < 600; i++) sum = sum * 7 + catcher(i + (long)seed);
    return (void *)sum;
}
static void terminated() {
    static const char text[] = "terminated as it should\n";
    KEEP(write(1, text, sizeof text - 1));
    abort();
}
int main(int argc, char **) {
    if (argc > 1) { // noexcept: std::terminate
        setvbuf(stdout, nullptr, _IONBF, 0);
        std::set_terminate(terminated);
        return (int)stopped(3);
    }
    pthread_t t[4];
    for (long i = 0; i < 4; i++) pthread_create(&t[i], nullptr, thread, (void *)(i * 1000));
    for (auto &one : t) {
        void *sum;
        pthread_join(one, &sum);
        printf("%ld\n", (long)sum);
    }
    printf("destructors %ld\n", calls_destroyed);
    SHOW(deep); SHOW(again); SHOW(tail); SHOW(thrower); SHOW(catcher);
    return 0;
}
