// Generates a call of `leaf` as PyPy's compiler does: where a jump is at its beginning, a call of the
// place to which the jump leads, which it keeps. Calls the generated code every millisecond. Prints
// "ready PID", and "followed" when there was a jump; ends with its input.
#include "e2e.h"
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>
TRACED long leaf(long n) { KEEP(&n); return n * 3 + 1; }
static const unsigned char *behind_jumps(const unsigned char *at) {
    for (int distance; *at == 0xE9; at += 5 + distance) memcpy(&distance, at + 1, 4);
    return at;
}
int main(void) {
    struct pollfd input = {0, POLLIN, 0};
    unsigned char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int followed = 0;
    long wrong = 0;
    printf("ready %d\n", getpid());
    fflush(stdout);
    for (long n = 0; poll(&input, 1, 1) == 0; n++) {
        const unsigned char *at = followed ? NULL : behind_jumps((const unsigned char *)leaf);
        if (at) {
            // mov r11, at; jmp r11
            memcpy(code, "\x49\xbb", 2);
            memcpy(code + 2, &at, 8);
            memcpy(code + 10, "\x41\xff\xe3", 3);
            followed = at != (const unsigned char *)leaf;
            if (followed) printf("followed\n"), fflush(stdout);
        }
        wrong += ((long (*)(long))code)(n) != n * 3 + 1;
    }
    if (wrong) printf("wrong: %ld\n", wrong);
    return wrong != 0;
}
