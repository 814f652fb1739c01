// Runs another program's main, renamed with -Dmain=once, as often as AGAIN says, so that calltap
// can attach in the middle.
#include <stdlib.h>
#undef main
int once(int argc, char **argv);
int main(int argc, char **argv) {
    int end = 0;
    const char *rounds = getenv("AGAIN");
    for (int i = rounds ? atoi(rounds) : 1; i > 0; i--) end = once(argc, argv);
    return end;
}
