package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/tensor"
)

// work is a window on its way to the output, and the checkpoint behind it; or the
// error that ended the reading.
type work[T tensor.Float] struct {
	w     *Window[T]
	check *checkpoint
	err   error
}

// line is what the three that go at the same time have between them.
type line[T tensor.Float] struct {
	free        chan *Window[T]
	full, ready chan work[T]  // windows to compute with, and to write
	stop        chan struct{} // nobody waits for further windows
	failed      chan struct{} // nobody writes further windows
}

// through makes the pass that is next from token r.at on: one goroutine reads, this
// one computes, one writes, each a window behind the other. What takes the cores to
// read is read by this one, too.
func (r *run[T]) through(ctx context.Context) error {
	p := r.passes[r.pass]
	if p.n >= 0 && r.at >= p.n {
		return nil
	}
	l := &line[T]{
		free: make(chan *Window[T], windows), full: make(chan work[T], windows), ready: make(chan work[T], windows+1),
		stop: make(chan struct{}), failed: make(chan struct{}),
	}
	for range windows {
		l.free <- r.newWindow(r.window, p.want)
	}
	next := &place{p, r.at}
	read, written := make(chan struct{}), make(chan error, 1)
	between := func() {}
	if r.src.Computed() {
		close(read)
		more := true
		between = func() {
			if more {
				if more = r.read(l, next); !more {
					close(l.full)
				}
			}
		}
	} else {
		go func() {
			for r.read(l, next) {
			}
			close(l.full)
			close(read)
		}()
	}
	go func() { written <- r.write(l) }()

	err := r.compute(ctx, l, between)
	close(l.stop)
	if err != nil && err == ctx.Err() && r.o.Checkpoint != "" {
		select {
		case b := <-r.room:
			var c *checkpoint
			if c, err = r.snapshot(b); err == nil {
				err = ctx.Err()
				l.ready <- work[T]{check: c}
			}
		case <-l.failed:
		}
	}
	close(l.ready)
	if e := <-written; e != nil {
		err = e
	}
	if !r.src.Sequential() { // a pipe may keep its reader for ever
		<-read
	}
	return err
}

// place is where in a pass the next window is read.
type place struct {
	pass
	at int64
}

// read fills one window and reports whether others follow.
func (r *run[T]) read(l *line[T], p *place) bool {
	if p.n >= 0 && p.at >= p.n {
		return false
	}
	var w *Window[T]
	select {
	case w = <-l.free:
	case <-l.stop:
		return false
	case <-l.failed:
		return false
	}
	want := r.window
	if p.n >= 0 {
		want = int(min(int64(want), p.n-p.at))
	}
	start := time.Now()
	n, err := r.src.Fill(w, p.query0+p.at, p.key0+p.at, want)
	r.filling.Add(int64(time.Since(start)))
	if err == nil && n < want && p.n >= 0 {
		err = fmt.Errorf("input: ends after token %d, it had %d", p.at+int64(n), p.n)
	}
	if err != nil {
		l.full <- work[T]{err: err}
		return false
	}
	if w.n, w.at = n, p.query0+p.at; n > 0 {
		l.full <- work[T]{w: w}
	}
	p.at += int64(n)
	return n == want
}

// compute brings windows through the state in their order. It calls between before
// each.
func (r *run[T]) compute(ctx context.Context, l *line[T], between func()) error {
	for {
		if ctx.Err() != nil { // before whatever else is ready
			return ctx.Err()
		}
		between()
		var x work[T]
		select {
		case x = <-l.full:
		case <-ctx.Done():
			return ctx.Err()
		case <-l.failed:
			return nil // its error is the writer's to tell
		}
		if x.w == nil {
			return x.err
		}
		if err := r.step(x.w); err != nil {
			return err
		}
		if r.o.Checkpoint != "" && time.Since(r.saved) >= r.o.Every {
			select {
			case b := <-r.room:
				c, err := r.snapshot(b)
				if err != nil {
					return err
				}
				x.check = c
			default: // the one before is still on its way
			}
		}
		l.ready <- x
		if r.o.Progress != nil {
			r.o.Progress(Progress{Done: r.done(), All: r.all(), Before: r.resumed})
		}
	}
}

// step brings one window through the state.
func (r *run[T]) step(w *Window[T]) (err error) {
	start := time.Now()
	s, n := &r.shape, float64(w.n)
	switch w.want {
	case Keys:
		err = r.state.Absorb(&w.Call)
		r.operations += r.flops * n * float64(s.B*s.Hkv)
	case Queries:
		err = r.state.Read(w.out.Tokens(0, w.n), &w.Call)
		r.operations += r.flops * n * float64(s.B*s.H)
	default:
		err = r.state.Step(w.out.Tokens(0, w.n), &w.Call)
		r.operations += r.flops * n * float64(s.B*(s.H+s.Hkv))
	}
	r.computing += time.Since(start)
	var odd *attention.NonFiniteError
	if errors.As(err, &odd) {
		odd.First[2] += int(w.at)
		if r.nonFinite += odd.Rows; r.o.AllowNonfinite {
			err = nil
		}
	}
	if err != nil && odd == nil {
		err = &BadInput{fmt.Errorf("tokens %d to %d: %w", w.at, w.at+int64(w.n)-1, err)}
	}
	if err != nil {
		return err
	}
	r.at += int64(w.n)
	r.input = w.Input
	return nil
}

// write writes windows and checkpoints in their order.
func (r *run[T]) write(l *line[T]) (err error) {
	for x := range l.ready {
		if err != nil {
			continue
		}
		if x.w != nil {
			if x.w.want&Queries != 0 {
				err = r.out.write(x.w.out.Tokens(0, x.w.n), x.w.at)
			}
			l.free <- x.w
		}
		if x.check != nil && err == nil {
			err = r.save(x.check)
			r.room <- x.check.state
		}
		if err != nil {
			close(l.failed)
		}
	}
	return err
}
