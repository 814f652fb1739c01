// A goroutine waits in each way, measures its waits, and tells which goroutine ended each.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"
)

var order []string
var noted = map[string]time.Duration{}

func note(kind string, wait func()) {
	began := time.Now()
	wait()
	noted[kind] = time.Since(began)
	order = append(order, kind)
}

// enders has the number of the goroutine that ends each wait, written before it does.
var enders [9]string
var started int

// own returns the number of this goroutine: the runtime tells it in a text only.
func own() string {
	text := make([]byte, 64)
	return strings.Fields(string(text[:runtime.Stack(text, false)]))[1]
}

func later(milliseconds int, act func()) {
	at := started
	started++
	go func() {
		time.Sleep(time.Duration(milliseconds) * time.Millisecond)
		enders[at] = own()
		act()
	}()
}

var sum int

//go:noinline
func spin() {
	for began := time.Now(); time.Since(began) < 20*time.Millisecond; {
		for i := 0; i < 100000; i++ {
			sum += i
		}
	}
}

//go:noinline
func handle() {
	receive, send, closed, never := make(chan int), make(chan int), make(chan int), make(chan int)
	later(30, func() { receive <- 1 })
	note("chan receive", func() { <-receive })
	later(35, func() { <-send })
	note("chan send", func() { send <- 1 })
	later(40, func() { close(closed) })
	note("select", func() {
		select {
		case <-closed:
		case <-never:
		}
	})
	note("sleep", func() { time.Sleep(45 * time.Millisecond) })

	var mutex sync.Mutex
	mutex.Lock()
	later(50, mutex.Unlock)
	note("sync.Mutex.Lock", mutex.Lock)
	var shared sync.RWMutex
	shared.Lock()
	later(30, shared.Unlock)
	note("sync.RWMutex.RLock", shared.RLock)
	var group sync.WaitGroup
	group.Add(1)
	later(35, group.Done)
	note("sync.WaitGroup.Wait", group.Wait)
	condition := sync.NewCond(&mutex)
	// Without the mutex, so that the goroutine does not wait for that as well.
	later(40, condition.Signal)
	note("sync.Cond.Wait", condition.Wait)

	reader, writer, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	later(45, func() { writer.Write([]byte{1}) })
	note("IO wait", func() { reader.Read(make([]byte, 1)) })
	spin()
}

func main() {
	done := make(chan bool)
	go func() {
		handle()
		done <- true
	}()
	<-done
	for _, kind := range order {
		fmt.Printf("about %d %s\n", noted[kind].Nanoseconds(), kind)
	}
	// In the order in which they were started; a sleep has none, and the network poller ends the
	// wait for the pipe.
	ended := []string{"chan receive", "chan send", "select", "sync.Mutex.Lock", "sync.RWMutex.RLock",
		"sync.WaitGroup.Wait", "sync.Cond.Wait"}
	for at, kind := range ended {
		fmt.Printf("ended %s %s\n", enders[at], kind)
	}
}
