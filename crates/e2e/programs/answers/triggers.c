// Works twice between a beginning and an end, with another thread, and makes other calls before and
// after.
#include "e2e.h"
#include <pthread.h>
TRACED void before(void) { KEEP(0L); }
TRACED void begin(void) { KEEP(1L); }
TRACED void inside(void) { KEEP(2L); }
TRACED void finish(void) { KEEP(3L); }
TRACED void after(void) { KEEP(4L); }
TRACED void leaf(void) { KEEP(5L); }
TRACED void branch(void) { leaf(); leaf(); KEEP(6L); }
TRACED void tree(void) { branch(); branch(); KEEP(7L); }
TRACED void *help(void *p) {
    for (int n = 0; n < 4; n++) inside();
    return p;
}
int main(void) {
    pthread_t thread;
    for (int n = 0; n < 3; n++) before();
    begin();
    for (int n = 0; n < 5; n++) inside();
    pthread_create(&thread, NULL, help, NULL);
    pthread_join(thread, NULL);
    finish();
    for (int n = 0; n < 7; n++) after();
    begin();
    inside(), inside();
    finish();
    tree();
    branch();
    puts("done");
    return 0;
}
