// Catches exceptions, the first of them when it is told to. Prints "ready"; ends with its input.
#include "e2e.h"
#include <stdexcept>

TRACED int throws(int n) { KEEP(&n); if (n % 3 == 0) throw std::runtime_error("third"); return n; }
TRACED int catches(int n) { try { return throws(n); } catch (std::exception &) { return -1; } }

int main() {
    puts("ready");
    fflush(stdout);
    int wrong = 0;
    for (int c; (c = getchar()) != EOF;)
        for (int n = 1; n < 7; n++) wrong += catches(n) != (n % 3 ? n : -1);
    for (int n = 1; n < 7; n++) wrong += catches(n) != (n % 3 ? n : -1);
    return wrong;
}
