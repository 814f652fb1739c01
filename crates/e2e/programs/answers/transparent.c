// Takes an address of a socket as the C library does: by a transparent union, of which gcc does not
// describe the members. Prints the arguments and the result of each call.
#define _GNU_SOURCE
#include "e2e.h"
#include <sys/socket.h>
TRACED int take(int fd, __SOCKADDR_ARG address, socklen_t *length, int flags) {
    KEEP(address.__sockaddr__);
    return fd + (int)*length + flags;
}
int main(void) {
    struct sockaddr address = {0};
    for (int n = 1; n <= 3; n++) {
        socklen_t length = 100;
        printf("take fd=%d flags=%d ret=%d\n", n, n * 10, take(n, &address, &length, n * 10));
    }
    return 0;
}
