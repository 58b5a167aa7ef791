// Package par runs independent pieces of work on persistent workers. The
// caller splits the work by its data alone, never by the number of workers, so
// results do not depend on how many there are.
package par

import (
	"math"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// MinWork is the amount of arithmetic (floating-point operations) under which
// Run works on the caller's goroutine: the kernels do it in 5 µs.
// BenchmarkCrossover measures it. Workers that are awake gain from 2¹⁷
// operations on. One that sleeps is woken for 11 µs of the caller's time and
// comes 100 µs later, so that it is lost for less than 2²⁴; but then it stays
// awake for the next call, and calls that are further apart lose a twentieth of
// their time at most.
const MinWork = 1 << 19

// Task is work on n things. Piece does it for those lo ≤ i < hi.
type Task interface{ RunRange(lo, hi int) }

// Func is a Task that does one thing at a time.
type Func func(i int)

func (f *Func) RunRange(lo, hi int) {
	for i := lo; i < hi; i++ {
		(*f)(i)
	}
}

// job is a call of Run. Workers may still hold it when the call is over, so it
// is reused only when the last of those who refer to it lets go.
type job struct {
	task       Task
	n, size    int
	pieces     int64
	next       atomic.Int64
	remaining  atomic.Int64 // pieces that are not done
	references atomic.Int64
	wg         sync.WaitGroup // of pieces
	mu         sync.Mutex
	panicked   any // first panic of a piece
}

var jobs = sync.Pool{New: func() any { return new(job) }}

func (j *job) runPieces() {
	for i := j.next.Add(1) - 1; i < j.pieces; i = j.next.Add(1) - 1 {
		j.runPiece(int(i))
	}
}

func (j *job) runPiece(i int) {
	defer func() {
		j.remaining.Add(-1)
		j.wg.Done()
	}()
	defer func() {
		if r := recover(); r != nil {
			j.mu.Lock()
			if j.panicked == nil {
				j.panicked = r
			}
			j.mu.Unlock()
		}
	}()
	j.task.RunRange(i*j.size, min((i+1)*j.size, j.n))
}

// helpOthers does other jobs until j is done.
func (j *job) helpOthers() {
	for since := time.Now(); j.remaining.Load() > 0; {
		select {
		case other := <-queue:
			other.runPieces()
			other.release()
			since = time.Now()
		default:
			if time.Since(since) < spinTime {
				runtime.Gosched()
			} else {
				time.Sleep(spinTime)
			}
		}
	}
}

// release lets go of j for one that refers to it.
func (j *job) release() {
	if j.references.Add(-1) == 0 {
		j.task, j.panicked = nil, nil
		jobs.Put(j)
	}
}

var (
	limit   atomic.Int64 // 0: GOMAXPROCS
	mu      sync.Mutex
	workers int
	// queue holds jobs that wait for a worker. Who comes late finds no piece
	// left, which does no harm; what does not fit is done by its caller.
	queue = make(chan *job, 256)
)

// SetThreads bounds the number of goroutines that Run uses; 0 means GOMAXPROCS.
func SetThreads(n int) { limit.Store(int64(max(n, 0))) }

// Threads returns the number of goroutines that Run uses at most.
func Threads() int {
	if n := limit.Load(); n > 0 {
		return int(n)
	}
	return runtime.GOMAXPROCS(0)
}

// RunEach calls f(0) … f(n-1), as Run does.
func RunEach(n int, work float64, f func(i int)) { Run(n, 1, work, Func(f)) }

// Run calls the Piece of task for 0 ≤ i < n in stretches of at most size, each
// once, in any order and on any worker, and returns when all are done. work is
// the total arithmetic: little of it runs on the caller's goroutine. Calls of
// Run inside Piece are allowed: workers join when they have nothing else to do.
// A panic in Piece is raised again here.
//
// Pieces are done by a copy of task, in memory that is kept for the next task of
// its type, so that a call allocates nothing.
func Run[A any, P interface {
	*A
	Task
}](n, size int, work float64, task A) {
	if n <= 0 {
		return
	}
	boxes := taskPool[A]()
	box := boxes.Get().(*A)
	*box = task
	runTask(n, size, work, P(box), false)
	var none A
	*box = none
	boxes.Put(box)
}

// RunParts calls f(0) … f(n-1), each a long stretch of work with calls of Run inside. It is
// Do, except that who calls it does not sleep while the last of them are under way but
// helps, as idle workers do: with those calls of Run, or with any others that wait for a
// worker. So the caller must hold no lock that a piece of work takes.
func RunParts(n int, f func(i int)) {
	task := Func(f)
	runTask(n, 1, math.Inf(1), &task, true)
}

// taskPools has for each type of task a *sync.Pool of pointers to it.
var taskPools sync.Map

func taskPool[A any]() *sync.Pool {
	t := reflect.TypeFor[A]()
	p, ok := taskPools.Load(t)
	if !ok {
		p, _ = taskPools.LoadOrStore(t, &sync.Pool{New: func() any { return new(A) }})
	}
	return p.(*sync.Pool)
}

// spinTime is how long a worker looks for another job before it sleeps, and a
// caller for the end of its own: about as long as waking takes, so that looking
// costs no more than not having looked. Both let other goroutines pass.
const spinTime = 200 * time.Microsecond

// serveJobs is what a worker does.
func serveJobs() {
	for {
		j := nextJob()
		j.runPieces()
		j.release()
	}
}

func nextJob() *job {
	const looks = 32 // between two looks at the clock
	for since := time.Now(); time.Since(since) < spinTime; runtime.Gosched() {
		for range looks {
			select {
			case j := <-queue:
				return j
			default:
			}
		}
	}
	return <-queue
}

func runTask(n, size int, work float64, task Task, helps bool) {
	pieces := (n + size - 1) / size
	t := min(Threads(), pieces)
	if t <= 1 || work < MinWork {
		for i := 0; i < n; i += size {
			task.RunRange(i, min(i+size, n))
		}
		return
	}
	mu.Lock()
	for ; workers < t-1; workers++ {
		go serveJobs()
	}
	mu.Unlock()
	j := jobs.Get().(*job)
	j.task, j.n, j.size, j.pieces = task, n, size, int64(pieces)
	j.next.Store(0)
	j.remaining.Store(int64(pieces))
	j.references.Store(int64(t))
	j.wg.Add(pieces)
	for range t - 1 {
		select {
		case queue <- j:
		default:
			j.references.Add(-1)
		}
	}
	j.runPieces()
	if helps {
		j.helpOthers()
	}
	for since := time.Now(); j.remaining.Load() > 0 && time.Since(since) < spinTime; {
		runtime.Gosched()
	}
	j.wg.Wait()
	failed := j.panicked
	j.release()
	if failed != nil {
		panic(failed)
	}
}
