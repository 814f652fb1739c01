// A library for programs in C: each call starts goroutines and adds up their results.
package main

import "C"
import (
	"strconv"
	"sync"
)

//go:noinline
func crunchLeaf(n int) int { return len(strconv.Itoa(n)) }

//go:noinline
func crunchWork(n int) int {
	sum := 0
	for i := 0; i < n; i++ {
		sum += crunchLeaf(i)
	}
	return sum
}

//export Crunch
func Crunch(n C.int) C.int {
	var all sync.WaitGroup
	results := make([]int, 4)
	for i := range results {
		all.Add(1)
		go func(result *int) {
			defer all.Done()
			*result = crunchWork(int(n))
		}(&results[i])
	}
	all.Wait()
	return C.int(results[0] + results[1] + results[2] + results[3])
}

func main() {}
