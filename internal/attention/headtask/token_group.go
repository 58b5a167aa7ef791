package headtask

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/par"
)

// tokenGroup is a group of workers that compute the tokens of one task together. They take
// pieces in order, and the pieces depend only on the data. A piece that continues the results
// of earlier pieces does so in stages, and waits for its turn at each stage. Pieces pass a
// stage in order, so that results do not depend on the workers or on time.
type tokenGroup struct {
	n    int // pieces
	next atomic.Int64

	passed []atomic.Int64 // pieces that have passed each stage
	failed atomic.Bool    // a worker has panicked, and no worker waits for it

	mu    sync.Mutex
	moved sync.Cond // a piece has passed, or failed is set
}

// runParallel runs f on the task's workers. Each worker has a task with scratch memory of
// its own. The workers take n pieces, which pass the given number of stages.
func (u *Task) runParallel(n, stages int, f func(u *Task, t *tokenGroup)) {
	if n <= 0 {
		return
	}
	t := &tokenGroup{n: n, passed: make([]atomic.Int64, stages)}
	t.moved.L = &t.mu
	par.RunEach(min(u.Workers, n), SplitWork+par.MinWork, func(worker int) {
		if t.next.Load() >= int64(n) {
			return // all pieces are taken
		}
		mine := *u
		if worker == 0 { // the worker that runs the task
			defer mine.Arena.Reset(mine.Arena.Mark())
		} else {
			mine.Arena = arena.Acquire()
			defer mine.Arena.Release()
		}
		if u.Monomials != nil {
			mine.Monomials = u.Monomials.Clone()
		}
		mine.Scan = Scan{}
		mine.DScale = arena.TakeZeros[float64](mine.Arena, len(u.Q))
		done := false
		defer func() {
			if !done {
				t.abort()
			}
		}()
		f(&mine, t)
		done = true
	})
}

// eachPiece calls f for n pieces, which pass the given number of stages, on the workers of
// the task. Start gives a worker what f works with. The group is nil where there is one
// worker.
func eachPiece[M any](u *Task, n, stages int, start func(u *Task) M, f func(x M, group *tokenGroup, i int)) {
	if u.Workers > 1 {
		u.runParallel(n, stages, func(u *Task, group *tokenGroup) {
			x := start(u)
			for i := group.nextPiece(); i < n; i = group.nextPiece() {
				f(x, group, i)
			}
		})
		return
	}
	mark := u.Arena.Mark()
	defer u.Arena.Reset(mark)
	x := start(u)
	for i := range n {
		f(x, nil, i)
	}
}

// nextPiece returns the next piece, t.n or more when none is left.
func (t *tokenGroup) nextPiece() int { return int(t.next.Add(1) - 1) }

// spinTime is how long a member looks for its turn before it sleeps: pieces take
// tens of microseconds, and so does waking.
const spinTime = 200 * time.Microsecond

// waitForTurn returns when the given number of pieces have passed a stage.
func (t *tokenGroup) waitForTurn(stage, pieces int) {
	for since := time.Now(); ; runtime.Gosched() {
		for range 32 { // between two looks at the clock
			if t.hasPassed(stage, pieces) {
				return
			}
		}
		if time.Since(since) > spinTime {
			break
		}
	}
	t.mu.Lock()
	for !t.hasPassed(stage, pieces) {
		t.moved.Wait()
	}
	t.mu.Unlock()
}

// hasPassed reports whether the given number of pieces have passed a stage.
func (t *tokenGroup) hasPassed(stage, pieces int) bool {
	return t.passed[stage].Load() >= int64(pieces) || t.failed.Load()
}

// passStage lets the next piece into a stage.
func (t *tokenGroup) passStage(stage int) {
	t.passed[stage].Add(1)
	t.wakeSleepers()
}

// abort lets everybody pass.
func (t *tokenGroup) abort() {
	t.failed.Store(true)
	t.wakeSleepers()
}

// wakeSleepers makes sleeping workers check their stage. A worker that found its stage closed
// under the lock is asleep when wake has the lock.
func (t *tokenGroup) wakeSleepers() {
	t.mu.Lock()
	t.mu.Unlock() //lint:ignore SA2001 waits for who is between looking and sleeping
	t.moved.Broadcast()
}

// The derivatives by the scale that each piece and head has are added in order.

// scaleParts returns room for the scale gradients of n pieces, if the scale is learned.
func (u *Task) scaleParts(n int) []float64 {
	if u.Spec.Tau == nil {
		return nil
	}
	return arena.TakeZeros[float64](u.Arena, n*len(u.Q))
}

// scalePart has the task add to the part of piece i.
func (u *Task) scalePart(parts []float64, i int) {
	if parts != nil {
		u.DScale = parts[i*len(u.Q):][:len(u.Q)]
	}
}

// sumScale adds the parts up.
func (u *Task) sumScale(parts []float64) {
	for i, d := range parts {
		u.DScale[i%len(u.Q)] += d
	}
}
