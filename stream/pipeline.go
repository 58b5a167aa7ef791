package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/tensor"
)

// pipelineItem is a window on its way to the output, and the checkpoint behind it; or the
// error that ended the reading.
type pipelineItem[T tensor.Float] struct {
	window     *Window[T]
	checkpoint *checkpoint
	err        error
}

// pipeline is what the three that go at the same time have between them.
type pipeline[T tensor.Float] struct {
	free        chan *Window[T]
	full, ready chan pipelineItem[T] // windows to compute with, and to write
	stop        chan struct{}        // nobody waits for further windows
	failed      chan struct{}        // nobody writes further windows
}

// runPass makes the pass that is next from token r.at on: one goroutine reads, this
// one computes, one writes, each a window behind the other. What takes the cores to
// read is read by this one, too.
func (r *run[T]) runPass(ctx context.Context) error {
	p := r.passes[r.pass]
	if p.count >= 0 && r.token >= p.count {
		return nil
	}
	l := &pipeline[T]{
		free: make(chan *Window[T], windowCount), full: make(chan pipelineItem[T], windowCount), ready: make(chan pipelineItem[T], windowCount+1),
		stop: make(chan struct{}), failed: make(chan struct{}),
	}
	for range windowCount {
		l.free <- r.newWindow(r.window, p.role)
	}
	next := &readPosition{p, r.token}
	read, written := make(chan struct{}), make(chan error, 1)
	between := func() {}
	if r.src.IsComputed() {
		close(read)
		more := true
		between = func() {
			if more {
				if more = r.readWindow(l, next); !more {
					close(l.full)
				}
			}
		}
	} else {
		go func() {
			for r.readWindow(l, next) {
			}
			close(l.full)
			close(read)
		}()
	}
	go func() { written <- r.writeWindows(l) }()

	err := r.computeWindows(ctx, l, between)
	close(l.stop)
	if err != nil && err == ctx.Err() && r.options.Checkpoint != "" {
		select {
		case b := <-r.snapshotBuffers:
			var c *checkpoint
			if c, err = r.newCheckpoint(b); err == nil {
				err = ctx.Err()
				l.ready <- pipelineItem[T]{checkpoint: c}
			}
		case <-l.failed:
		}
	}
	close(l.ready)
	if e := <-written; e != nil {
		err = e
	}
	if !r.src.IsSequential() { // a pipe may keep its reader for ever
		<-read
	}
	return err
}

// readPosition is where in a pass the next window is read.
type readPosition struct {
	pass
	token int64
}

// readWindow fills one window and reports whether others follow.
func (r *run[T]) readWindow(l *pipeline[T], p *readPosition) bool {
	if p.count >= 0 && p.token >= p.count {
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
	if p.count >= 0 {
		want = int(min(int64(want), p.count-p.token))
	}
	start := time.Now()
	n, err := r.src.FillWindow(w, p.firstQuery+p.token, p.firstKey+p.token, want)
	r.fillTime.Add(int64(time.Since(start)))
	if err == nil && n < want && p.count >= 0 {
		err = fmt.Errorf("input: ends after token %d, it had %d", p.token+int64(n), p.count)
	}
	if err != nil {
		l.full <- pipelineItem[T]{err: err}
		return false
	}
	if w.count, w.position = n, p.firstQuery+p.token; n > 0 {
		l.full <- pipelineItem[T]{window: w}
	}
	p.token += int64(n)
	return n == want
}

// computeWindows brings windows through the state in their order. It calls between before
// each.
func (r *run[T]) computeWindows(ctx context.Context, l *pipeline[T], between func()) error {
	for {
		if ctx.Err() != nil { // before whatever else is ready
			return ctx.Err()
		}
		between()
		var x pipelineItem[T]
		select {
		case x = <-l.full:
		case <-ctx.Done():
			return ctx.Err()
		case <-l.failed:
			return nil // its error is the writer's to tell
		}
		if x.window == nil {
			return x.err
		}
		if err := r.stepWindow(x.window); err != nil {
			return err
		}
		if r.options.Checkpoint != "" && time.Since(r.lastSave) >= r.options.CheckpointInterval {
			select {
			case b := <-r.snapshotBuffers:
				c, err := r.newCheckpoint(b)
				if err != nil {
					return err
				}
				x.checkpoint = c
			default: // the one before is still on its way
			}
		}
		l.ready <- x
		if r.options.Progress != nil {
			r.options.Progress(Progress{Done: r.doneTokens(), Total: r.totalTokens(), Resumed: r.resumed})
		}
	}
}

// stepWindow brings one window through the state.
func (r *run[T]) stepWindow(w *Window[T]) (err error) {
	start := time.Now()
	s, n := &r.shape, float64(w.count)
	switch w.role {
	case Keys:
		err = r.state.Absorb(&w.Call)
		r.operations += r.flops * n * float64(s.B*s.Hkv)
	case Queries:
		err = r.state.Read(w.out.Tokens(0, w.count), &w.Call)
		r.operations += r.flops * n * float64(s.B*s.H)
	default:
		err = r.state.Step(w.out.Tokens(0, w.count), &w.Call)
		r.operations += r.flops * n * float64(s.B*(s.H+s.Hkv))
	}
	r.computeTime += time.Since(start)
	var odd *attention.NonFiniteError
	if errors.As(err, &odd) {
		odd.First[2] += int(w.position)
		if r.nonFinite += odd.Rows; r.options.AllowNonfinite {
			err = nil
		}
	}
	if err != nil && odd == nil {
		err = &BadInput{fmt.Errorf("tokens %d to %d: %w", w.position, w.position+int64(w.count)-1, err)}
	}
	if err != nil {
		return err
	}
	r.token += int64(w.count)
	r.inputSum = w.Input
	return nil
}

// writeWindows writes windows and checkpoints in their order.
func (r *run[T]) writeWindows(l *pipeline[T]) (err error) {
	for x := range l.ready {
		if err != nil {
			continue
		}
		if x.window != nil {
			if x.window.role&Queries != 0 {
				err = r.out.writeRows(x.window.out.Tokens(0, x.window.count), x.window.position)
			}
			l.free <- x.window
		}
		if x.checkpoint != nil && err == nil {
			err = r.saveCheckpoint(x.checkpoint)
			r.snapshotBuffers <- x.checkpoint.state
		}
		if err != nil {
			close(l.failed)
		}
	}
	return err
}
