// Go calls C, which calls Go, in fifty goroutines.
package main

/*
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
extern int goBack(int);
static int cwork(int n) { char *p = malloc(100 + n % 50); memset(p, n, 100); int r = p[3] + n; free(p); return r; }
static int ccall(int n) { return goBack(n) + 1; }
*/
import "C"
import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

var backs, leaves int64
var stop int32

//export goBack
func goBack(n C.int) C.int {
	return C.int(back(int(n)))
}

//go:noinline
func back(n int) int {
	atomic.AddInt64(&backs, 1)
	if n%7 == 0 {
		return int(C.cwork(C.int(n)))
	}
	return leaf(n)
}

//go:noinline
func leaf(n int) int {
	atomic.AddInt64(&leaves, 1)
	return len(strconv.Itoa(n))
}

func main() {
	rounds := 200
	if len(os.Args) > 1 {
		rounds = 1 << 60
		fmt.Println("ready")
		go func() {
			var b [1]byte
			os.Stdin.Read(b[:])
			atomic.StoreInt32(&stop, 1)
		}()
	}
	var wg sync.WaitGroup
	for i := 0; i < 50; i++ {
		wg.Add(1)
		go func(i int) {
			defer wg.Done()
			for j := 0; j < rounds && atomic.LoadInt32(&stop) == 0; j++ {
				C.ccall(C.int(i * j % 1000))
				if j%10 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		}(i)
	}
	wg.Add(1)
	go func() {
		defer wg.Done()
		for k := 0; k < 20; k++ {
			runtime.GC()
		}
	}()
	wg.Wait()
	fmt.Println("calls main.back", backs)
	fmt.Println("calls main.leaf", leaves)
}
