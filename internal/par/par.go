// Package par runs independent pieces of work on a pool of threads that stays alive. The caller
// divides the work by its data alone, never by the number of workers, so results do not depend on
// that number.
package par

import (
	"math"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// MinWork is the number of floating-point operations below which Run computes on the caller's
// goroutine: 5 µs of the kernels. BenchmarkCrossover measures it. Workers that are awake help from
// 2¹⁷ operations on. Waking a worker costs the caller 11 µs and takes 100 µs, which does not pay
// below 2²⁴ operations. But the worker then stays awake for the next call, and calls that are
// further apart lose at most a twentieth of their time.
const MinWork = 1 << 19

// Task is work on n items. RunRange does the items lo ≤ i < hi.
type Task interface{ RunRange(lo, hi int) }

// Func is a Task that does one item at a time.
type Func func(i int)

// RunRange calls f for lo ≤ i < hi.
func (f *Func) RunRange(lo, hi int) {
	for i := lo; i < hi; i++ {
		(*f)(i)
	}
}

// job is a call of Run. Workers may hold it after the call, so it is reused only after its last
// reference is released.
type job struct {
	task       Task
	n, size    int
	pieces     int64
	next       atomic.Int64
	remaining  atomic.Int64 // unfinished pieces
	references atomic.Int64
	wg         sync.WaitGroup // pieces
	mu         sync.Mutex
	panicked   any // first panic of a piece
}

var jobs = sync.Pool{New: func() any { return new(job) }}

// runPieces runs pieces until none is left to start.
func (j *job) runPieces() {
	for i := j.next.Add(1) - 1; i < j.pieces; i = j.next.Add(1) - 1 {
		j.runPiece(int(i))
	}
}

// runPiece runs piece i and keeps its panic.
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

// helpOthers runs other jobs until j is done.
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

// release drops one reference to j. The last one returns j to the pool.
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
	// queue holds jobs that wait for a worker. A late worker finds no piece left; jobs that do not
	// fit are run by their callers.
	queue = make(chan *job, 256)
)

// SetThreads sets the largest number of goroutines that compute at the same time; 0 means
// GOMAXPROCS.
func SetThreads(n int) { limit.Store(int64(max(n, 0))) }

// Threads returns the largest number of goroutines that compute at the same time.
func Threads() int {
	if n := limit.Load(); n > 0 {
		return int(n)
	}
	return runtime.GOMAXPROCS(0)
}

// RunEach calls f(0) … f(n-1) as Run does, one item at a time.
func RunEach(n int, work float64, f func(i int)) { Run(n, 1, work, Func(f)) }

// Run does the items 0 ≤ i < n of task: it calls RunRange with ranges of at most size items, in any
// order and on any worker, and returns when all are done. work is the total number of operations;
// below MinWork they run on the caller's goroutine. RunRange may itself call Run, in which idle
// workers help. A panic in RunRange is raised in the caller. Run copies task to memory that is used
// again, so it does not allocate.
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

// RunParts calls f(0) … f(n-1), each a long part of work that calls Run itself. Unlike in RunEach,
// the caller does not sleep while the last parts run: like an idle worker, it helps with their
// calls of Run, or with any other waiting work. So it must not hold a lock that any piece takes.
func RunParts(n int, f func(i int)) {
	task := Func(f)
	runTask(n, 1, math.Inf(1), &task, true)
}

// taskPools maps types of tasks to a *sync.Pool of pointers.
var taskPools sync.Map

// taskPool returns the pool of tasks of type A.
func taskPool[A any]() *sync.Pool {
	t := reflect.TypeFor[A]()
	if p := loadPool(t); p != nil {
		return p
	}
	return storePool(t, &sync.Pool{New: func() any { return new(A) }})
}

// loadPool returns the pool of a type; nil: there is none. It is not inlined, because packages that
// call Run would compile the generic types of sync.Map.
//
//go:noinline
func loadPool(t reflect.Type) *sync.Pool {
	p, ok := taskPools.Load(t)
	if !ok {
		return nil
	}
	return p.(*sync.Pool)
}

// storePool returns the pool of a type, which is p unless there is one.
//
//go:noinline
func storePool(t reflect.Type, p *sync.Pool) *sync.Pool {
	stored, _ := taskPools.LoadOrStore(t, p)
	return stored.(*sync.Pool)
}

// spinTime is the time for which a worker polls for jobs before it sleeps, and a caller for the end of
// its own job. It is about the time of waking, so polling costs no more than sleeping. Both yield to
// other goroutines.
const spinTime = 200 * time.Microsecond

// serveJobs is the loop of a worker.
func serveJobs() {
	for {
		j := nextJob()
		j.runPieces()
		j.release()
	}
}

// nextJob polls for a job for spinTime, then waits.
func nextJob() *job {
	const polls = 32 // polls per reading of the clock
	for since := time.Now(); time.Since(since) < spinTime; runtime.Gosched() {
		for range polls {
			select {
			case j := <-queue:
				return j
			default:
			}
		}
	}
	return <-queue
}

// runTask runs task in pieces of size items. With helps set, the caller helps other jobs while it
// waits.
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
