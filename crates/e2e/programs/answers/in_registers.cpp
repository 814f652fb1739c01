// Structures that are passed and returned in one register. Prints their members.
#include "e2e.h"

struct handle { long *place; };
struct id { int kind; short number; unsigned char flag; };
struct point { float x, y; };
struct outer { id inner; };
struct bits { unsigned low : 4, high : 4; };
extern "C" {
TRACED handle use(handle h, int k) { KEEP(h.place); return handle{h.place + k}; }
TRACED int identify(id i, outer o) { KEEP(&i); return i.kind + o.inner.number; }
TRACED float measure(point p) { KEEP(&p); return p.x; }
TRACED unsigned take_bits(bits b) { KEEP(&b); return b.low; }
}
int main() {
    static long cells[2] = {7, 4242};
    for (int n = 0; n < 2; n++) {
        handle h = use(handle{cells}, n);
        printf("use(h.place=%p)\nresult retval.place=%p\n", (void *)cells, (void *)h.place);
        identify(id{-3 - n, short(-9 - n), 200}, outer{{5, short(6 + n), 1}});
        printf("identify(i.kind=%d, i.number=%d, i.flag=200, o.inner.number=%d)\n", -3 - n, -9 - n, 6 + n);
        measure(point{1.5f + n, -2.25f});
        printf("measure(p.x=%g, p.y=-2.25)\n", 1.5 + n);
        take_bits(bits{3, 4});
    }
    return 0;
}
