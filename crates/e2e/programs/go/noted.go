// Records the functions that each goroutine calls, with their depths, while goroutines change
// threads, stacks grow, and the garbage collector runs all the time. `noted PROCESSORS GOROUTINES`
package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
)

// The record of a goroutine: a sum over names and depths, and the number of calls.
type notes struct {
	goroutine, sum uint64
	count, depth   int
}

//go:noinline
func (n *notes) enter(name string) {
	for _, b := range []byte(name + ":" + strconv.Itoa(n.depth) + ";") {
		n.sum = (n.sum ^ uint64(b)) * 1099511628211
	}
	n.count++
	n.depth++
}

//go:noinline
func notedLeaf(n *notes, i int) int {
	n.enter("notedLeaf")
	r := len(strconv.Itoa(i))
	n.depth--
	return r
}

//go:noinline
func notedGrow(n *notes, i int, b [40]int) int {
	n.enter("notedGrow")
	r := notedLeaf(n, i)
	if i > 0 {
		b[i%40]++
		r += notedGrow(n, i-1, b) + b[i%40]
	}
	n.depth--
	return r
}

//go:noinline
func notedSwitch(n *notes, ping, pong chan int) int {
	n.enter("notedSwitch")
	runtime.Gosched()
	ping <- 1
	r := <-pong
	n.depth--
	return r
}

//go:noinline
func notedFail(n *notes, i int) int {
	n.enter("notedFail")
	if i == 0 {
		panic(i)
	}
	r := notedFail(n, i-1) + 1
	n.depth--
	return r
}

//go:noinline
func notedDeferred(n *notes) {
	n.enter("notedDeferred")
	n.depth--
}

//go:noinline
func notedRecover(n *notes, i int) (r int) {
	n.enter("notedRecover")
	depth := n.depth
	defer func() {
		n.enter("notedRecover.func1")
		if recover() != nil {
			notedDeferred(n)
			n.depth = depth - 1
		}
	}()
	r = notedFail(n, i)
	n.depth--
	return
}

// This function's calls are not recorded.
//go:noinline
func try(n *notes, i int) {
	depth := n.depth
	defer func() {
		if recover() != nil {
			n.depth = depth
		}
	}()
	notedFail(n, i)
}

//go:noinline
func notedExit(n *notes) {
	n.enter("notedExit")
	runtime.Goexit()
}

//go:noinline
func notedWorker(n *notes, i int, ping, pong chan int) int {
	n.enter("notedWorker")
	sum := 0
	for round := 0; round < 3; round++ {
		sum += notedLeaf(n, i) + notedGrow(n, (i+round)%30, [40]int{})
		sum += notedSwitch(n, ping, pong)
		if i%3 == 0 {
			sum += notedRecover(n, i%5)
			try(n, i%4)
			sum += notedLeaf(n, i)
		}
	}
	if i%7 == 0 {
		notedExit(n)
	}
	n.depth--
	return sum
}

func own() uint64 {
	var b [64]byte
	words := bytes.Fields(b[:runtime.Stack(b[:], false)])
	number, _ := strconv.ParseUint(string(words[1]), 10, 64)
	return number
}

func main() {
	processors, _ := strconv.Atoi(os.Args[1])
	goroutines, _ := strconv.Atoi(os.Args[2])
	runtime.GOMAXPROCS(processors)
	debug.SetGCPercent(1)
	all := make([]notes, goroutines)
	ping, pong, stop := make(chan int), make(chan int), make(chan bool)
	var wg sync.WaitGroup
	for i := range all {
		wg.Add(1)
		go func(i int) {
			n := &all[i]
			n.sum, n.goroutine = 14695981039346656037, own()
			defer wg.Done()
			notedWorker(n, i, ping, pong)
		}(i)
	}
	go func() {
		for {
			select {
			case <-ping:
				pong <- 1
			case <-stop:
				return
			}
		}
	}()
	if goroutines < 1000 {
		go func() {
			for {
				select {
				case <-stop:
					return
				default:
					runtime.GC()
				}
			}
		}()
	}
	wg.Wait()
	close(stop)
	for _, n := range all {
		fmt.Println("about", n.goroutine, n.count, n.sum)
	}
}
