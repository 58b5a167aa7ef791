package attention

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/par"
)

// team is the workers that compute the tokens of one unit together. They take pieces in
// order; the data alone decides the pieces. A piece that continues the results of
// earlier pieces does so in stages, and waits for its turn at each. Pieces pass a stage
// in order, so that no bit depends on the worker or on time.
type team struct {
	n    int // pieces
	next atomic.Int64

	passed []atomic.Int64 // pieces that have passed each stage
	failed atomic.Bool    // a worker has panicked, and no worker waits for it

	mu    sync.Mutex
	moved sync.Cond // a piece has passed, or failed is set
}

// splitWork is the least arithmetic of a unit that is divided among workers. A single
// worker never waits. Tests set a lower value.
var splitWork float64 = 1 << 23

// workers returns how many goroutines may do the tokens of a unit, where as many
// units have so much work and the call has it all: several only where the unit
// is more than a worker's share.
func workers(units int, work, all float64) int {
	threads := par.Threads()
	if n := float64(units); work <= splitWork*n || work*float64(threads) <= all*n {
		return 1
	}
	return threads
}

// together runs f on the unit's workers. Each worker has a unit with scratch memory of
// its own. The workers take n pieces, which pass the given number of stages.
func (u *unit[T]) together(n, stages int, f func(u *unit[T], t *team)) {
	if n <= 0 {
		return
	}
	t := &team{n: n, passed: make([]atomic.Int64, stages)}
	t.moved.L = &t.mu
	par.RunEach(min(u.workers, n), splitWork+par.MinWork, func(worker int) {
		if t.next.Load() >= int64(n) {
			return // all pieces are taken
		}
		mine := *u
		if worker == 0 { // the worker that runs the unit
			defer mine.ar.Reset(mine.ar.Mark())
		} else {
			mine.ar = arena.Acquire()
			defer mine.ar.Release()
		}
		if u.walker != nil {
			mine.walker = u.walker.Clone()
		}
		mine.stream = stream[T]{}
		mine.dscale = arena.TakeZeros[float64](mine.ar, len(u.q))
		done := false
		defer func() {
			if !done {
				t.fail()
			}
		}()
		f(&mine, t)
		done = true
	})
}

// take returns the next piece, t.n or more when none is left.
func (t *team) take() int { return int(t.next.Add(1) - 1) }

// patience is how long a member looks for its turn before it sleeps: pieces take
// tens of microseconds, and so does waking.
const patience = 200 * time.Microsecond

// wait returns when the given number of pieces have passed a stage.
func (t *team) wait(stage, pieces int) {
	for since := time.Now(); ; runtime.Gosched() {
		for range 32 { // between two looks at the clock
			if t.open(stage, pieces) {
				return
			}
		}
		if time.Since(since) > patience {
			break
		}
	}
	t.mu.Lock()
	for !t.open(stage, pieces) {
		t.moved.Wait()
	}
	t.mu.Unlock()
}

// open reports that the given number of pieces have passed a stage.
func (t *team) open(stage, pieces int) bool {
	return t.passed[stage].Load() >= int64(pieces) || t.failed.Load()
}

// pass lets the next piece into a stage.
func (t *team) pass(stage int) {
	t.passed[stage].Add(1)
	t.wake()
}

// fail lets everybody pass.
func (t *team) fail() {
	t.failed.Store(true)
	t.wake()
}

// wake makes sleeping workers check their stage. A worker that found its stage closed
// under the lock is asleep when wake has the lock.
func (t *team) wake() {
	t.mu.Lock()
	t.mu.Unlock() //lint:ignore SA2001 waits for who is between looking and sleeping
	t.moved.Broadcast()
}

// pieces returns how many pieces of a size n tokens have.
func pieces(n, size int) int { return (max(n, 0) + size - 1) / size }

// The derivatives by the scale that each piece and head has are added in order.

// scaleParts returns room for the scale gradients of n pieces, if the scale is learned.
func (u *unit[T]) scaleParts(n int) []float64 {
	if u.spec.Tau == nil {
		return nil
	}
	return arena.TakeZeros[float64](u.ar, n*len(u.q))
}

// scalePart has the unit add to the part of piece i.
func (u *unit[T]) scalePart(parts []float64, i int) {
	if parts != nil {
		u.dscale = parts[i*len(u.q):][:len(u.q)]
	}
}

// sumScale adds the parts up.
func (u *unit[T]) sumScale(parts []float64) {
	for i, d := range parts {
		u.dscale[i%len(u.q)] += d
	}
}
