/* Prints the names of its frames as libunwind finds them. */
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#include <stdio.h>

__attribute__((noinline)) int walk_c(int n) {
    unw_context_t context;
    unw_cursor_t cursor;
    unw_getcontext(&context);
    unw_init_local(&cursor, &context);
    do {
        char name[64];
        unw_word_t offset;
        if (unw_get_proc_name(&cursor, name, sizeof name, &offset) == 0) printf("frame: %s\n", name);
    } while (unw_step(&cursor) > 0);
    return n + 1;
}
__attribute__((noinline)) int walk_b(int n) { return walk_c(n) * 2; }
__attribute__((noinline)) int walk_a(int n) { return walk_b(n) + 3; }

int main(void) { return walk_a(1) == 0; }
