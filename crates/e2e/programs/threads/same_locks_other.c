#include <pthread.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
void lock_other(void) { pthread_mutex_lock(&lock); }
void unlock_other(void) { pthread_mutex_unlock(&lock); }
