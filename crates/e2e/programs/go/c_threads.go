// Threads of C call Go.
package main

/*
#include <pthread.h>
extern void goBack(void);
static void *run(void *unused) { for (int n = 0; n < 1000; n++) goBack(); return unused; }
static void runThreads(void) {
	pthread_t threads[3];
	for (int n = 0; n < 3; n++) pthread_create(&threads[n], 0, run, 0);
	for (int n = 0; n < 3; n++) pthread_join(threads[n], 0);
}
*/
import "C"
import (
	"fmt"
	"sync/atomic"
)

var calls int64

//export goBack
func goBack() { atomic.AddInt64(&calls, 1) }

func main() {
	C.runThreads()
	fmt.Println("callbacks", calls)
}
