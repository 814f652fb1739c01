/* Calls libraries by stubs and without. */
#include <stdio.h>
#include <stdlib.h>

extern long labs(long) __attribute__((noplt));
extern unsigned long strlen(const char *);

int main(int argc, char **argv) {
    unsigned long (*volatile length)(const char *) = strlen;
    puts(argv[0] + labs(0) * argc);
    return length("") != 0;
}
