// Functions whose names users write in a shorter form than compilers do. Prints the number of calls
// of each.
#include <cstdio>
#include <cstdlib>
struct Request { int number; };
#define KEEP __attribute__((noinline, noclone)) 
static int calls[5];
KEEP int handle_request(Request& request) { calls[0]++; return request.number * 3 + calls[0]; }
namespace net {
struct Srv {
    int state = 1;
    KEEP int handle(int n) { calls[1]++; return state += n * 5 + calls[1]; }
    KEEP int handle(const char* text) { calls[2]++; return state += text[0] * 7 + calls[2]; }
};
}
template <class T> KEEP T compute(T value) { calls[3]++; return value * value + calls[3] + 1; }
extern "C" KEEP void free_all(void* memory) { calls[4]++; free(memory); calls[4] += 0; }
int main() {
    Request request{1};
    net::Srv srv;
    double sum = 0;
    for (int n = 0; n < 4; n++) {
        sum += handle_request(request) + srv.handle(n) + srv.handle("text") + compute(n) + compute(n * 0.5);
        free_all(malloc(16));
    }
    printf("%d %d %d %d %d %d\n", calls[0], calls[1], calls[2], calls[3], calls[4], sum > 0);
}
