// Runs until its input ends: goroutines that compute, sleep, are preempted and collected. Exits
// with 1 if one of them finds an error. A line of input starts a round of calls that are counted.
// `taken`: memory is mapped where the copies for exits would be.
package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var stop int32
var calls int64
var seed uint64 = 5

//go:noinline
func tick(n uint64) uint64 {
	var room [16]uint64
	room[n%16] = n
	return mix(n) ^ room[(n+1)%16]
}

//go:noinline
func mix(n uint64) uint64 {
	if n%3 == 0 {
		return deeper(n, 3)
	}
	return n*2654435761 + 1
}

//go:noinline
func deeper(n uint64, depth int) uint64 {
	var room [30]uint64
	room[depth] = n
	if depth == 0 {
		return room[1] + n
	}
	return deeper(n+1, depth-1) + room[depth]
}

//go:noinline
func leafRead() uint64 { return seed }

// A goroutine is often preempted in the middle.
//
//go:noinline
func leafLoop() (sum uint64) {
	for i := seed * 10000; i > 0; i-- {
		sum = sum*3 + 1
	}
	return sum
}

//go:noinline
func spin(n int) (sum uint64) {
	for atomic.LoadInt32(&stop) == 0 {
		sum = tick(sum + uint64(n))
		atomic.AddInt64(&calls, 1)
		if leafRead() != 5 || leafLoop() != leafLoop() {
			fmt.Println("wrong: a leaf")
			os.Exit(1)
		}
	}
	return
}

//go:noinline
func sleepy(n int) {
	for atomic.LoadInt32(&stop) == 0 {
		time.Sleep(time.Duration(n%10+1) * time.Millisecond)
		tick(uint64(n))
	}
}

//go:noinline
func growing(n int) int {
	var b [100]byte
	b[n%100] = 1
	if n == 0 {
		return int(b[0])
	}
	return growing(n-1) + int(b[n%100])
}

//go:noinline
func counted(n int) int { return len(strconv.Itoa(n)) }

func main() {
	if len(os.Args) > 1 && os.Args[1] == "taken" {
		const fixed = syscall.MAP_PRIVATE | syscall.MAP_ANON | syscall.MAP_NORESERVE | 0x100000
		_, _, errno := syscall.Syscall6(syscall.SYS_MMAP, 0x5d000000, 0x4000000, 0, fixed, ^uintptr(0), 0)
		if errno != 0 {
			fmt.Println("wrong:", errno)
			os.Exit(1)
		}
	}
	var profile bytes.Buffer
	pprof.StartCPUProfile(&profile)
	var wg sync.WaitGroup
	run := func(f func(int), n int) {
		for i := 0; i < n; i++ {
			wg.Add(1)
			go func(i int) { defer wg.Done(); f(i) }(i)
		}
	}
	run(func(n int) { spin(n) }, 8)
	run(sleepy, 300)
	run(func(n int) {
		for atomic.LoadInt32(&stop) == 0 {
			done := make(chan int)
			go func() { done <- growing(1000 + n) }()
			if got := <-done; got != 1001+n {
				fmt.Println("wrong:", got)
				os.Exit(1)
			}
		}
	}, 2)
	run(func(int) {
		for atomic.LoadInt32(&stop) == 0 {
			runtime.GC()
			time.Sleep(time.Millisecond)
		}
	}, 1)
	fmt.Println("ready")
	var b [1]byte
	for n, _ := os.Stdin.Read(b[:]); n == 1; n, _ = os.Stdin.Read(b[:]) {
		for i := 0; i < 12345; i++ {
			counted(i)
		}
		fmt.Println("done")
	}
	atomic.StoreInt32(&stop, 1)
	wg.Wait()
	pprof.StopCPUProfile()
	fmt.Println("over", calls > 0, profile.Len() > 0)
}
