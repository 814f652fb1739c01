// Catches exceptions, the first of them when it is told to; as many threads as its argument says
// catch all the time. Prints "ready"; ends with its input.
#include "e2e.h"
#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

TRACED int throws(int n) { KEEP(&n); if (n % 3 == 0) throw std::runtime_error("third"); return n; }
TRACED int catches(int n) { try { return throws(n); } catch (std::exception &) { return -1; } }

static std::atomic<bool> over;
static std::atomic<int> wrong;

static void catch_all_the_time() {
    while (!over)
        for (int n = 1; n < 7; n++) wrong += catches(n) != (n % 3 ? n : -1);
}

int main(int argc, char **argv) {
    std::vector<std::thread> threads;
    for (int n = argc > 1 ? atoi(argv[1]) : 0; n > 0; n--) threads.emplace_back(catch_all_the_time);
    puts("ready");
    fflush(stdout);
    for (int c; (c = getchar()) != EOF;)
        for (int n = 1; n < 7; n++) wrong += catches(n) != (n % 3 ? n : -1);
    for (int n = 1; n < 7; n++) wrong += catches(n) != (n % 3 ? n : -1);
    over = true;
    for (auto &thread : threads) thread.join();
    return wrong != 0;
}
