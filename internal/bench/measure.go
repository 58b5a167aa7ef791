package bench

import (
	"context"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
)

const (
	leastRounds = 3
	mostRounds  = 101
	leastRound  = time.Millisecond     // of calls that are timed together
	peakTime    = 2 * time.Millisecond // of the peak, before each round
)

// Measure fills in how the case goes, in rounds that take about budget together
// but are three at least. Each round measures the peak first, so that both meet
// the same machine. It returns the error of ctx between two calls.
func (c *Case) Measure(ctx context.Context, budget time.Duration) error {
	w, err := c.open()
	if err != nil {
		return err
	}
	repeats, err := w.warm()
	if err != nil {
		return err
	}
	c.Line.ISA, c.Line.Threads = kernel.Active[float32]().Name, par.Threads()
	var seconds, peaks []float64
	var joules float64
	extra := int64(math.MaxInt64)
	for start := time.Now(); len(seconds) < leastRounds || len(seconds) < mostRounds && time.Since(start) < budget; {
		if err := ctx.Err(); err != nil {
			return err
		}
		peaks = append(peaks, kernel.FMAPeak(c.Line.ISA, peakTime))
		r, err := w.round(repeats)
		if err != nil {
			return err
		}
		seconds = append(seconds, r.seconds)
		joules += r.joules
		// Arenas grow, and are lost to the garbage collector, at any time: the
		// round that saw neither has the least.
		extra = min(extra, r.bytes)
	}
	t := median(seconds)
	// A core of the same kind for each thread, as far as there are cores.
	cores := float64(min(c.Line.Threads, runtime.NumCPU()))
	c.Line.Ms, c.Line.Spread = 1e3*t, spread(seconds)
	c.Line.GFLOPS, c.Line.Peak = c.FLOPs/t/1e9, median(peaks)*cores/1e9
	c.Line.Share = c.Line.GFLOPS / c.Line.Peak
	c.Line.ExtraBytes = w.held + extra
	c.Line.Joules = joules / float64(len(seconds))
	return nil
}

// warm makes the first calls, which fetch memory, and returns how many calls a
// round has to have.
func (w *work) warm() (repeats int, err error) {
	r, err := w.round(1)
	for repeats = 1; err == nil && w.ready == nil && r.spent < 20*leastRound; repeats *= 2 {
		if r, err = w.round(repeats); r.spent >= leastRound {
			break
		}
	}
	return repeats, err
}

// round is what a few calls took, each.
type round struct {
	spent   time.Duration // by all
	seconds float64
	joules  float64
	bytes   int64 // allocated, and scratch of a worker
}

func (w *work) round(repeats int) (r round, err error) {
	if w.ready != nil {
		if err := w.ready(); err != nil {
			return r, err
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	arena.HighWater()
	energy := processor.read()
	start := time.Now()
	for range repeats {
		if err := w.call(); err != nil {
			return r, err
		}
	}
	r.spent = time.Since(start)
	r.joules = processor.since(energy)
	scratch := arena.HighWater()
	runtime.ReadMemStats(&after)
	calls := repeats * max(w.calls, 1)
	r.seconds, r.joules = r.spent.Seconds()/float64(calls), r.joules/float64(calls)
	r.bytes = scratch + int64(after.TotalAlloc-before.TotalAlloc)/int64(calls)
	return r, nil
}

// spread is the distance of the quartiles of x over its median; it sorts x.
func spread(x []float64) float64 {
	m := median(x)
	if m == 0 {
		return 0
	}
	n := len(x)
	return (median(slices.Clone(x[(n+1)/2:])) - median(slices.Clone(x[:n/2]))) / m
}
