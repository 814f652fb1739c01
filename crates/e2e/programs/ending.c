// Has so much memory that its end takes a while.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
    size_t size = (size_t)768 << 20;
    char *memory = malloc(size);
    if (!memory) return 1;
    memset(memory, 1, size);
    puts("ready");
    fflush(stdout);
    return getchar();
}
