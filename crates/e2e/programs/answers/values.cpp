// Functions with all kinds of arguments and results; prints each call as a reader should see it:
// `call NAME(a=1, ...)  ret=...`.
#include "e2e.h"
#include <stdbool.h>
#include <string>
#include <string_view>

enum color { RED, GREEN = 7 };
struct pair {
    long first;
    double second;
};
struct large {
    long words[4];
};
struct request {
    int id;
    unsigned short port;
    const char *host;
    struct {
        unsigned long bytes;
        bool done;
    } body;
    request *next;
};

extern "C" {
TRACED int integers(signed char a, unsigned short b, int c, unsigned long d, bool e, char f) {
    return a + b + c + (int)d + e + f;
}
TRACED long on_the_stack(int a, int b, int c, int d, int e, int f, long g, short h) {
    return g + h + a + b + c + d + e + f;
}
TRACED double floats(float a, double b, int c) { return a * b + c; }
TRACED const char *texts(const char *a, const char *b, char *c) {
    KEEP(b);
    KEEP(c);
    return a + 2;
}
TRACED unsigned long structures(request *r, color c) { return r->body.bytes + c; }
TRACED bool mixed(pair p, long after, large l, int last) {
    KEEP(p.first + after);
    return l.words[3] == last;
}
TRACED large returns_large(int n) { return {{n, n, n, n}}; }
TRACED void nothing(void *p) { KEEP(p); }
TRACED size_t strings(const std::string &s, std::string &t) { return s.size() + t.size(); }
TRACED size_t views(std::string_view a, int n, std::string s, std::string_view b) {
    KEEP(n);
    return a.size() + s.size() + b.size();
}
TRACED int recursive(int n) {
    int below = n == 0 ? 0 : recursive(n - 1);
    KEEP(below);
    return below + n;
}
TRACED long filtered(int n, unsigned flags) {
    KEEP(flags);
    return n;
}
}
TRACED std::string joined(std::string a, std::string_view b) { return a += b; }
TRACED std::string_view rest(std::string_view of) { return of.substr(2); }

int main(int argc, char **argv) {
    const char *guard = (const char *)8;
    for (int round = 0; round < 3; round++) {
        int sum = integers(-1, 65535, -70000 - round, 1ul << 40, true, 'x');
        printf("call integers(a=-1, b=65535, c=%d, d=%lu, e=true, f='x')  ret=%d\n", -70000 - round, 1ul << 40, sum);
        long far = on_the_stack(1, 2, 3, 4, 5, 6, -7, 8);
        printf("call on_the_stack(a=1, b=2, c=3, d=4, e=5, f=6, g=-7, h=8)  ret=%ld\n", far);
        double product = floats(1.5f, 2.25, round);
        printf("call floats(a=1.5, b=2.25, c=%d)  ret=%.3f\n", round, product);
        char text[] = "line\n\"quoted\"";
        texts("hello", NULL, text);
        printf("call texts(a=\"hello\", b=NULL, c=\"line\\n\\\"quoted\\\"\")  ret=\"llo\"\n");
        texts("hello", guard, text);
        printf("call texts(a=\"hello\", b=<unreadable>, c=\"line\\n\\\"quoted\\\"\")  ret=\"llo\"\n");
        request next = {2, 8080, "second", {99, true}, NULL};
        request r = {1, 443, "first", {4096ul + round, false}, &next};
        printf("items structures(id=1, port=443, host=\"first\", bytes=%lu, next=\"second\", c=7)  ret=%lu\n",
               4096ul + round, structures(&r, GREEN));
        mixed({5, 2.5}, 6, {{1, 2, 3, 4}}, 4);
        printf("items mixed(after=6, last=4)  ret=true\n");
        KEEP(returns_large(round).words[0]);
        printf("items returns_large(n=%d)\n", round);
        nothing(text);
        std::string s = "a string", t(100, 'y');
        size_t length = strings(s, t);
        printf("call strings(s=\"a string\", t=\"%.64s\"...)  ret=%zu\n", t.c_str(), length);
        std::string_view whole = "a view of text", part = whole.substr(2, 4);
        printf("call views(a=\"view\", n=%d, s=\"a string\", b=\"a view of text\")  ret=%zu\n", round, views(part, round, s, whole));
        std::string longer = joined(t, part), shorter = joined("a ", part);
        printf("call joined(a=\"%.64s\"..., b=\"view\")  ret=\"%.64s\"...\n", t.c_str(), longer.c_str());
        printf("call joined(a=\"a \", b=\"view\")  ret=\"%s\"\n", shorter.c_str());
        printf("call rest(of=\"a view of text\")  ret=\"%s\"\n", rest(whole).data());
        for (int n = 0; n < 100; n++)
            filtered(n - 50, n);
    }
    recursive(20);
    return argc > 5 && argv[0] == NULL;
}
