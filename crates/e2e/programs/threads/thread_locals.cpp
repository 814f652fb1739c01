// thread_local objects whose traced destructors run at the end of their threads, of main and of cancelled threads.
#include "e2e.h"
#include <thread>
#include <vector>

COUNTED(made); COUNTED(unmade); COUNTED(touch);
extern "C" TRACED long made(long n) { HIT(made); return n; }
extern "C" TRACED long unmade(long n) { HIT(unmade); return n; }
struct Local {
    long n;
    Local() : n(made(3)) {}
    ~Local() { unmade(n); }
};
static thread_local Local local;
extern "C" TRACED long touch(long n) { HIT(touch); return local.n += n; }
struct Report {
    ~Report() { SHOW(made); SHOW(unmade); SHOW(touch); } // after main's thread_locals
};
static Report report;
int main() {
    long sum = touch(1);
    for (int round = 0; round < 50; round++) {
        std::vector<std::thread> all;
        for (int i = 0; i < 8; i++) all.emplace_back([i] { touch(i); touch(i); });
        for (auto &one : all) one.join();
    }
    printf("%ld\n", sum);
    return 0;
}
