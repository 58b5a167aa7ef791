package par

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

const much = 10 * MinWork // arithmetic enough to wake workers

func TestDoRunsEachPieceOnce(t *testing.T) {
	for _, threads := range []int{1, 2, 5} {
		SetThreads(threads)
		for _, n := range []int{0, 1, 2, 7, 100} {
			count := make([]atomic.Int64, n)
			RunEach(n, much, func(i int) { count[i].Add(1) })
			for i := range count {
				if c := count[i].Load(); c != 1 {
					t.Errorf("%d threads, n = %d: piece %d ran %d times", threads, n, i, c)
				}
			}
		}
	}
	SetThreads(0)
}

func TestNestedCallsFinish(t *testing.T) {
	SetThreads(4)
	defer SetThreads(0)
	var sum atomic.Int64
	RunEach(9, much, func(i int) {
		RunEach(11, much, func(j int) { sum.Add(int64(i * j)) })
	})
	if got, want := sum.Load(), int64(36*55); got != want {
		t.Errorf("sum %d, want %d", got, want)
	}
}

// A worker that is busy when RunEach is called joins as soon as it is free.
func TestBusyWorkersJoin(t *testing.T) {
	SetThreads(3)
	defer SetThreads(0)
	free, joined := make(chan bool), make(chan bool)
	RunEach(3, much, func(i int) {
		if i > 0 {
			<-free
			return
		}
		RunEach(2, much, func(i int) {
			if i > 0 {
				close(joined)
				return
			}
			close(free)
			<-joined // by another goroutine than this one
		})
	})
}

// A caller or worker that waits for the last parts helps with their nested calls.
func TestWaitingCallersHelp(t *testing.T) {
	SetThreads(2)
	defer SetThreads(0)
	goroutine := func() string {
		var line [64]byte
		s, _, _ := strings.Cut(string(line[:runtime.Stack(line[:], false)]), " [")
		return s
	}
	caller := goroutine()
	for _, callerWaits := range []bool{true, false} {
		var begun sync.WaitGroup
		begun.Add(2)
		RunParts(2, func(int) {
			begun.Done()
			begun.Wait() // both have a goroutine of their own
			if (goroutine() == caller) == callerWaits {
				return
			}
			var joined sync.WaitGroup
			joined.Add(2)
			RunEach(2, much, func(int) {
				joined.Done()
				joined.Wait()
			})
		})
	}
}

func TestPartsRaisePanics(t *testing.T) {
	SetThreads(2)
	defer SetThreads(0)
	var ran atomic.Int64
	defer func() {
		if r := recover(); r != "part 1" || ran.Load() != 3 {
			t.Errorf("recovered %v after %d parts", r, ran.Load())
		}
	}()
	RunParts(3, func(i int) {
		ran.Add(1)
		if i == 1 {
			panic("part 1")
		}
	})
}

func TestDoRaisesPanics(t *testing.T) {
	SetThreads(3)
	defer SetThreads(0)
	var ran atomic.Int64
	func() {
		defer func() {
			if r := recover(); r != "piece 5" {
				t.Errorf("recovered %v", r)
			}
		}()
		RunEach(20, much, func(i int) {
			ran.Add(1)
			if i == 5 {
				panic("piece 5")
			}
		})
	}()
	// The workers survive.
	ran.Store(0)
	RunEach(20, much, func(int) { ran.Add(1) })
	if ran.Load() != 20 {
		t.Errorf("%d pieces ran after a panic, want 20", ran.Load())
	}
}

func TestLittleWorkStaysSerial(t *testing.T) {
	SetThreads(8)
	defer SetThreads(0)
	last := -1
	RunEach(50, MinWork/2, func(i int) { // in order, so on one goroutine
		if i != last+1 {
			t.Errorf("piece %d after %d", i, last)
		}
		last = i
	})
}
