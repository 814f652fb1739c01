// Counts the calls of its own functions while stacks grow and move, goroutines start and end, and
// the garbage collector runs.
package main

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
	"sync/atomic"
)

var leaves, grows, deep, workers, panics, recovers int64

//go:noinline
func leaf(n int) int {
	atomic.AddInt64(&leaves, 1)
	return helper(n) + 1
}

//go:noinline
func helper(n int) int { return len(strconv.Itoa(n)) }

type big struct{ words [40]int }

//go:noinline
func grow(n int, b big) int {
	atomic.AddInt64(&grows, 1)
	var own [20]int
	own[n%20] = n
	if n == 0 {
		return own[0]
	}
	b.words[n%40]++
	return grow(n-1, b) + own[n%20] - n
}

//go:noinline
func huge(n int) int {
	atomic.AddInt64(&deep, 1)
	var room [200000]byte
	room[n%len(room)] = 1
	if n > 0 {
		return huge(n-1) + int(room[(n+1)%len(room)])
	}
	return leaf(n)
}

//go:noinline
func fail(n int) {
	atomic.AddInt64(&panics, 1)
	panic(n)
}

//go:noinline
func recovering(n int) (r int) {
	defer func() {
		if e := recover(); e != nil {
			atomic.AddInt64(&recovers, 1)
			r = e.(int)
		}
	}()
	fail(n)
	return 0
}

//go:noinline
func worker(n, rounds int, in, out chan int) {
	atomic.AddInt64(&workers, 1)
	sum := 0
	for i := 0; i < rounds; i++ {
		v := <-in
		sum += leaf(v)
		sum += grow(v%50, big{})
		if v%10 == 0 {
			sum += recovering(v)
		}
	}
	out <- sum
}

func main() {
	const n, rounds = 1000, 5
	var profile bytes.Buffer
	pprof.StartCPUProfile(&profile)
	stop := make(chan bool)
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	}()
	in, out := make(chan int), make(chan int)
	for i := 0; i < n; i++ {
		go worker(i, rounds, in, out)
	}
	go func() {
		for i := 0; i < n*rounds; i++ {
			in <- i
		}
	}()
	sum := 0
	for i := 0; i < n; i++ {
		sum += <-out
	}
	sum += huge(20)
	close(stop)
	wg.Wait()
	pprof.StopCPUProfile()
	fmt.Println("sum", sum)
	fmt.Println("calls main.leaf", leaves)
	fmt.Println("calls main.grow", grows)
	fmt.Println("calls main.huge", deep)
	fmt.Println("calls main.worker", workers)
	fmt.Println("calls main.fail", panics)
	fmt.Println("calls main.recovering.func1", recovers)
}
