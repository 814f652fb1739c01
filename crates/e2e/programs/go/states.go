// One request spends time in every state of a goroutine other than a wait, and writes how much:
// it runs, is ready to run while another goroutine has the only processor of the runtime, and is
// blocked in a system call.
package main

import (
	"fmt"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// Runs for some time, and returns the processor time of the thread, or 0 if the thread changed.
//
//go:noinline
func spin(d time.Duration) time.Duration {
	before, thread := used(), syscall.Gettid()
	for start := time.Now(); time.Since(start) < d; {
	}
	if syscall.Gettid() != thread {
		return 0
	}
	return used() - before
}

// Processor time of the thread. That of getrusage is in steps of a tick on many kernels.
//
//go:noinline
func used() time.Duration {
	const CLOCK_THREAD_CPUTIME_ID = 3
	var now syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, CLOCK_THREAD_CPUTIME_ID, uintptr(unsafe.Pointer(&now)), 0)
	return time.Duration(now.Nano())
}

//go:noinline
func other(done *bool) {
	spin(6 * time.Millisecond)
	*done = true
}

// Each run of the goroutine that yields records a call of this function.
//
//go:noinline
func isDone(done *bool) bool {
	return *done || used() < 0
}

// Yields until another goroutine is done, and returns how long that took.
//
//go:noinline
func yield() time.Duration {
	done := false
	go other(&done)
	start := time.Now()
	for !isDone(&done) {
		runtime.Gosched()
	}
	return time.Since(start)
}

//go:noinline
func sleep() time.Duration {
	start := time.Now()
	pause := syscall.NsecToTimespec(int64(40 * time.Millisecond))
	syscall.Nanosleep(&pause, nil)
	return time.Since(start)
}

//go:noinline
func handle() {
	var ran, ready time.Duration
	for range [5]int{} {
		ran += spin(6 * time.Millisecond)
		ready += yield()
	}
	blocked := sleep()
	fmt.Println("about", ran.Nanoseconds(), ready.Nanoseconds(), blocked.Nanoseconds())
}

func main() {
	runtime.GOMAXPROCS(1)
	handle()
}
