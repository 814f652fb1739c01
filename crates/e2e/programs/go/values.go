// A program that prints the values that its own functions get and return, in calltap's form.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

type point struct{ x, y int64 }

type shape interface{ area() int }

type square struct{ side int }

//go:noinline
func (s square) area() int { return s.side * s.side }

// Types with names of their own.
type label string
type content []byte

//go:noinline
func handle(name label, n int, small int8, big uint64, ok bool, data content) (label, error) {
	if n%2 == 1 {
		return "", errors.New(string(name))
	}
	return name + "!", nil
}

// Interfaces with and without methods, whose values have types of each kind.
//
//go:noinline
func kinds(a any, s shape, err error) (any, error) {
	touch()
	return s, err
}

type failure struct{ code int }

func (f failure) Error() string { return "failed" }

// typed returns the name of a value's type.
func typed(a any) string {
	if a == nil {
		return "nil"
	}
	return fmt.Sprintf("%T", a)
}

var touched int

//go:noinline
func touch() { touched++ }

// A function that calls another checks its stack.
//
//go:noinline
func float(f float64, g float32, n uint16) float64 {
	touch()
	return f + float64(g) + float64(n)
}

//go:noinline
func structs(p point, one struct{ n int32 }, m map[string]int, s shape, many [2]int) int {
	return int(p.x) + int(one.n) + len(m) + s.area() + many[0]
}

// Nine integer registers, and a tenth value on the stack.
//
//go:noinline
func many(a, b, c, d, e, f, g, h, i, j int) (int, int) {
	touch()
	return a + b + c + d + e, f + g + h + i + j
}

// Where it is inlined, the compiler does not describe the parameter without a name.
func blank(_ int, number int64) int64 {
	touch()
	return 2 * number
}

var pointer = blank

//go:noinline
func deep(n int) int {
	var room [256]byte
	room[n%256] = byte(n)
	if n == 0 {
		return int(room[0])
	}
	return deep(n-1) + 1
}

func main() {
	var lines []string
	note := func(form string, values ...any) { lines = append(lines, fmt.Sprintf(form, values...)) }
	for n := 0; n < 20; n++ {
		name, data := label(strings.Repeat("né", n)), make(content, n, 2*n)
		result, err := handle(name, n-7, int8(-n), uint64(1)<<63+uint64(n), n%3 == 0, data)
		if len(name) > 64 {
			panic("it would be cut off")
		}
		failed := typed(err)
		if err != nil {
			failed += ": " + err.Error()
		}
		note("handle(name=%q, n=%d, small=%d, big=%d, ok=%t, data=%d) = %q %s", name, n-7, -n, uint64(1)<<63+uint64(n), n%3 == 0, n, result, failed)
		f := float(float64(n)/2, float32(n)/4, uint16(65535-n))
		note("float(%g, %g, %d) = %g", float64(n)/2, float32(n)/4, 65535-n, f)
		touched += int(blank(1, 5))
		note("blank(%d) = %d", n, pointer(7, int64(n)))
		a, b := many(1, 2, 3, 4, 5, n, 7, 8, -9, 10)
		note("many(%d) = %d %d", n, a, b)
		structs(point{1, 2}, struct{ n int32 }{int32(n)}, nil, square{n}, [2]int{1, 2})
	}
	inner := errors.New("inner")
	wide := struct{ theFirstOfTheNamesInATypeThatIsTooLongToBeKeptByAnyMeansWhatever, theSecondOfTheNamesInATypeThatIsTooLongToBeKeptByAnyMeansWhatever int }{1, 2}
	for _, a := range []any{nil, 5, "text", []byte{1}, map[string]point{}, &point{1, 2}, square{3}, func() {}, failure{4}, wide} {
		for _, s := range []shape{nil, square{1}, &square{2}} {
			for _, err := range []error{nil, inner, fmt.Errorf("outer: %w", inner), failure{7}, &os.PathError{Op: "open", Path: "x", Err: inner}} {
				text := ""
				if name := typed(err); name == "*errors.errorString" || name == "*fmt.wrapError" {
					text = ": " + err.Error()
				}
				first, second := kinds(a, s, err)
				note("kinds(%s, %s, %s%s) = %s %s%s", typed(a), typed(s), typed(err), text, typed(first), typed(second), text)
			}
		}
	}
	done := make(chan int)
	for n := 0; n < 50; n++ {
		go func(n int) { done <- deep(n * 20) }(n)
	}
	for n := 0; n < 50; n++ {
		<-done
	}
	fmt.Fprintln(os.Stdout, strings.Join(lines, "\n"))
}
