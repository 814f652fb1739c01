// An audit library: ld.so loads it into a namespace of its own before anything else, and notifies
// it of every object and symbol.
#define _GNU_SOURCE
#include "e2e.h"
#include <link.h>
static int objects, symbols;
TRACED static void seen(int *what) { ++*what; KEEP(what); }
unsigned la_version(unsigned version) { seen(&objects); return version; }
unsigned la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie) {
    (void)map; (void)space; (void)cookie;
    seen(&objects);
    return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}
uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned index, uintptr_t *from, uintptr_t *to, unsigned *flags, const char *name) {
    (void)index; (void)from; (void)to; (void)flags; (void)name;
    seen(&symbols);
    return symbol->st_value;
}
