// Goroutines start goroutines, and each writes its number, that of its starter, and its first
// function, as the runtime's own backtrace has them. `family` runs to its end; `family stay` also
// waits for a line between the generations.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"
)

var all sync.WaitGroup
var writing sync.Mutex

// Writes what the backtrace of the calling goroutine says.
//
//go:noinline
func familyNote() {
	buffer := make([]byte, 1<<14)
	lines := strings.Split(strings.TrimSpace(string(buffer[:runtime.Stack(buffer, false)])), "\n")
	var number, starter uint64
	fmt.Sscanf(lines[0], "goroutine %d ", &number)
	first := lines[len(lines)-2]
	for n, line := range lines {
		if at := strings.Index(line, " in goroutine "); at >= 0 && strings.HasPrefix(line, "created by ") {
			fmt.Sscanf(line[at:], " in goroutine %d", &starter)
			first = lines[n-2]
		}
	}
	first = first[:strings.LastIndex(first, "(")]
	writing.Lock()
	fmt.Println("about", number, starter, first)
	writing.Unlock()
}

//go:noinline
func familyLeaf() {
	defer all.Done()
	familyNote()
	time.Sleep(2 * time.Millisecond)
}

//go:noinline
func familyChild() {
	defer all.Done()
	familyNote()
	for range [3]int{} {
		all.Add(2)
		go familyLeaf()
		go func() {
			defer all.Done()
			familyNote()
		}()
	}
}

//go:noinline
func familyGeneration() {
	for range [8]int{} {
		all.Add(1)
		go familyChild()
	}
	all.Wait()
}

func main() {
	familyNote()
	familyGeneration()
	if len(os.Args) > 1 {
		fmt.Println("ready")
		in := bufio.NewReader(os.Stdin)
		for {
			if _, err := in.ReadString('\n'); err != nil {
				return
			}
			familyGeneration()
			fmt.Println("done")
		}
	}
}
