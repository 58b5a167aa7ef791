// Package par runs independent pieces of work on persistent workers. The
// caller splits the work by its data alone, never by the number of workers, so
// results do not depend on how many there are.
package par

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// MinWork is the amount of arithmetic (floating-point operations) under which
// Do runs on the caller's goroutine: waking a worker costs 50 to 100 µs.
const MinWork = 1 << 21

type job struct {
	f    func(i int)
	n    int64
	next atomic.Int64
	wg   sync.WaitGroup // of pieces
	mu   sync.Mutex
	fail any // first panic of a piece
}

func (j *job) run() {
	for i := j.next.Add(1) - 1; i < j.n; i = j.next.Add(1) - 1 {
		j.piece(int(i))
	}
}

func (j *job) piece(i int) {
	defer j.wg.Done()
	defer func() {
		if r := recover(); r != nil {
			j.mu.Lock()
			if j.fail == nil {
				j.fail = r
			}
			j.mu.Unlock()
		}
	}()
	j.f(i)
}

var (
	limit   atomic.Int64 // 0: GOMAXPROCS
	mu      sync.Mutex
	workers int
	// queue holds jobs that wait for a worker. Who comes late finds no piece
	// left, which does no harm; what does not fit is done by its caller.
	queue = make(chan *job, 256)
)

// SetThreads bounds the number of goroutines that Do uses; 0 means GOMAXPROCS.
func SetThreads(n int) { limit.Store(int64(max(n, 0))) }

// Threads returns the number of goroutines that Do uses at most.
func Threads() int {
	if n := limit.Load(); n > 0 {
		return int(n)
	}
	return runtime.GOMAXPROCS(0)
}

// Do calls f(0) … f(n-1), each once, in any order and on any worker, and
// returns when all are done. work is the total arithmetic: little of it runs
// on the caller's goroutine. Calls of Do inside f are allowed: workers join when
// they have nothing else to do. A panic in f is raised again here.
func Do(n int, work float64, f func(i int)) {
	t := min(Threads(), n)
	if t <= 1 || work < MinWork {
		for i := range n {
			f(i)
		}
		return
	}
	mu.Lock()
	for ; workers < t-1; workers++ {
		go func() {
			for j := range queue {
				j.run()
			}
		}()
	}
	mu.Unlock()
	j := &job{f: f, n: int64(n)}
	j.wg.Add(n)
	for range t - 1 {
		select {
		case queue <- j:
		default:
		}
	}
	j.run()
	j.wg.Wait()
	if j.fail != nil {
		panic(j.fail)
	}
}
