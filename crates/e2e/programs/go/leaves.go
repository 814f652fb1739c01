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

var total, seed int64 = 0, 7

//go:noinline
func leafConstant() int { return 7 }

//go:noinline
func leafRead() int64 { return seed }

//go:noinline
func leafEmpty() {}

//go:noinline
func leafAtomic() int64 { return atomic.AddInt64(&total, 1) }

// Goroutines are often preempted in it.
//
//go:noinline
func leafLoop() (sum int64) {
	for i := seed * 300; i > 0; i-- {
		sum = sum*3 + i
	}
	return sum
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
	n.note("leafRead", 0)
	r := int(leafRead())
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
		n.note("leafConstant", 0)
		sum += leafConstant() & 1
		n.note("leafLoop", 0)
		sum += int(leafLoop()) & 1
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
	fmt.Println("atomic", total)
}
