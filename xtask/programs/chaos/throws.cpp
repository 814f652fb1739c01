// C++ exceptions through traced frames, in two threads.
#include "chaos.h"
#include <stdexcept>

struct Counted {
    long &count;
    explicit Counted(long &count) : count(count) {}
    ~Counted() { count++; }
};
TRACED long descend(long n, long &destroyed) {
    Counted here(destroyed);
    if (n == 0) throw std::runtime_error("here");
    return descend(n - 1, destroyed) + 1;
}
static void *throws(void *p) {
    struct worker own = begin();
    for (long n = 0; !over; n++) {
        long destroyed = 0;
        bool caught = false;
        try {
            descend(10, destroyed);
        } catch (const std::runtime_error &) {
            caught = true;
        }
        if (!caught || destroyed != 11) FAIL("an exception: caught %d, %ld of 11 destroyed\n", caught, destroyed);
        check(n);
        step(&own);
        if (n % 64 == 0) usleep(50);
    }
    return p;
}
extern "C" void throws_mode(int, long) {
    for (int n = 0; n < 2; n++) join_at_end(start(throws, NULL));
}
