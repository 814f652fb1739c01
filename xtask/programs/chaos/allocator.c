// An allocator of the program's own, with a spin lock: a thread inside of it must not be made to
// allocate.
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <errno.h>

static atomic_flag lock = ATOMIC_FLAG_INIT;
static struct block { struct block *next; size_t size; } *lists[40];
static char heap[512 << 20] __attribute__((aligned(16)));
static size_t used;

static void take(void) { while (atomic_flag_test_and_set_explicit(&lock, memory_order_acquire)) __builtin_ia32_pause(); }
static void leave(void) { for (volatile int n = 0; n < 300; n++) {} atomic_flag_clear_explicit(&lock, memory_order_release); }

void *malloc(size_t size) {
    int class = 5;
    while ((size_t)1 << class < size + sizeof(struct block)) class++;
    take();
    struct block *block = lists[class];
    if (block) lists[class] = block->next;
    else if (used + ((size_t)1 << class) <= sizeof heap) { block = (struct block *)(heap + used); used += (size_t)1 << class; }
    leave();
    if (!block) { errno = ENOMEM; return NULL; }
    block->size = class;
    return block + 1;
}
void free(void *p) {
    if (!p) return;
    struct block *block = (struct block *)p - 1;
    // Memory of `aligned_alloc` is not freed.
    if (block->size >= 40) return;
    take();
    block->next = lists[block->size];
    lists[block->size] = block;
    leave();
}
void *calloc(size_t count, size_t size) { void *p = malloc(count * size); if (p) memset(p, 0, count * size); return p; }
void *realloc(void *old, size_t size) {
    void *p = malloc(size);
    if (old && p) {
        size_t class = ((struct block *)old - 1)->size, had = ((size_t)1 << class) - sizeof(struct block);
        memcpy(p, old, had < size ? had : size);
        free(old);
    }
    return p;
}
void *aligned_alloc(size_t to, size_t size) {
    char *p = malloc(size + to + sizeof(struct block));
    if (!p) return NULL;
    p = (char *)(((size_t)p + sizeof(struct block) + to - 1) / to * to);
    ((struct block *)p - 1)->size = 40;
    return p;
}
void *memalign(size_t to, size_t size) { return aligned_alloc(to, size); }
int posix_memalign(void **p, size_t to, size_t size) { *p = aligned_alloc(to, size); return *p ? 0 : ENOMEM; }
