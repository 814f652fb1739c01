// Calls functions that do not check their stack, and notes for them what they do, while stacks grow,
// goroutines change threads, and the garbage collector runs all the time. `leaves PROCESSORS GOROUTINES`
package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
)

// The record of a goroutine: a sum over names and depths, and the number of calls.
type notes struct {
	goroutine, sum uint64
	count, depth   int
}

type pair struct{ a, b int }

var total, branches int64

//go:noinline
func first() {}

//go:noinline
func leafSum(a, b int) int { return a*3 + b }

//go:noinline
func leafEmpty() {}

//go:noinline
func leafAtomic() int64 { return atomic.AddInt64(&total, 1) }

//go:noinline
func leafPair(p pair) int { return p.a ^ p.b }

//go:nosplit
//go:noinline
func leafOuter(n int) int { return leafSum(n, 1) + leafPair(pair{n, 2}) }

// Its entries alone are recorded: an exit has no room.
//go:noinline
func branch(a int) int {
	if a > 10 {
		return a - 10
	}
	return a + 1
}

//go:noinline
func (n *notes) note(name string, deeper int) {
	for _, b := range []byte(name + ":" + strconv.Itoa(n.depth+deeper) + ";") {
		n.sum = (n.sum ^ uint64(b)) * 1099511628211
	}
	n.count++
}

//go:noinline
func leafDeep(n *notes, i int, room [40]int) int {
	n.note("leafDeep", 0)
	n.depth++
	room[i%40] = i
	n.note("leafSum", 0)
	r := leafSum(i, room[3])
	if i > 0 {
		r += leafDeep(n, i-1, room)
	}
	n.depth--
	return r + room[i%7]
}

func worker(n *notes, rounds int) (sum int) {
	for i := 0; i < rounds; i++ {
		n.note("leafEmpty", 0)
		leafEmpty()
		n.note("leafAtomic", 0)
		sum += int(leafAtomic()) & 1
		n.note("leafOuter", 0)
		n.note("leafSum", 1)
		n.note("leafPair", 1)
		sum += leafOuter(i) & 1
		atomic.AddInt64(&branches, 1)
		sum += branch(i%20) & 1
		if i%10 == 0 {
			sum += leafDeep(n, i%50, [40]int{}) & 1
			runtime.Gosched()
		}
	}
	return sum
}

func own() uint64 {
	var b [64]byte
	words := bytes.Fields(b[:runtime.Stack(b[:], false)])
	number, _ := strconv.ParseUint(string(words[1]), 10, 64)
	return number
}

func main() {
	first()
	processors, _ := strconv.Atoi(os.Args[1])
	goroutines, _ := strconv.Atoi(os.Args[2])
	runtime.GOMAXPROCS(processors)
	all := make([]notes, goroutines)
	stop := make(chan bool)
	var wg sync.WaitGroup
	for i := range all {
		wg.Add(1)
		go func(i int) {
			n := &all[i]
			n.sum, n.goroutine = 14695981039346656037, own()
			defer wg.Done()
			worker(n, 100)
		}(i)
	}
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
	wg.Wait()
	close(stop)
	for _, n := range all {
		fmt.Println("about", n.goroutine, n.count, n.sum)
	}
	fmt.Println("branches", branches)
}
