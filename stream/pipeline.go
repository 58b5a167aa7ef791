package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/streamfile"
)

// pipelineItem is a window on its way to the output, with a checkpoint to write after it,
// or an error of the reader.
type pipelineItem struct {
	window     *Window
	checkpoint *streamfile.Checkpoint
	err        error
}

// pipeline connects the goroutines that read, compute and write.
type pipeline struct {
	freeWindows              chan *Window
	computeQueue, writeQueue chan pipelineItem // windows to compute, and to write
	stop                     chan struct{}     // closed when no more windows are needed
	failed                   chan struct{}     // closed when the writer has failed
}

// runPass runs the current pass from token r.token on. One goroutine reads, this one
// computes, one writes, each a window after the other. Computed sources are read by
// this goroutine between computations.
func (r *run) runPass(ctx context.Context) error {
	p := r.passes[r.pass]
	if p.count >= 0 && r.token >= p.count {
		return nil
	}
	l := &pipeline{
		freeWindows: make(chan *Window, windowCount), computeQueue: make(chan pipelineItem, windowCount), writeQueue: make(chan pipelineItem, windowCount+1),
		stop: make(chan struct{}), failed: make(chan struct{}),
	}
	for range windowCount {
		l.freeWindows <- r.newWindow(r.window, p.role)
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
					close(l.computeQueue)
				}
			}
		}
	} else {
		go func() {
			for r.readWindow(l, next) {
			}
			close(l.computeQueue)
			close(read)
		}()
	}
	go func() { written <- r.writeWindows(l) }()

	err := r.computeWindows(ctx, l, between)
	close(l.stop)
	if err != nil && err == ctx.Err() && r.options.Checkpoint != "" {
		select {
		case b := <-r.snapshotBuffers:
			var c *streamfile.Checkpoint
			if c, err = r.newCheckpoint(b); err == nil {
				err = ctx.Err()
				l.writeQueue <- pipelineItem{checkpoint: c}
			}
		case <-l.failed:
		}
	}
	close(l.writeQueue)
	if e := <-written; e != nil {
		err = e
	}
	if !r.src.IsSequential() { // a pipe may block its reader for ever
		<-read
	}
	return err
}

// readPosition is the position in a pass where the next window is read.
type readPosition struct {
	pass
	token int64
}

// readWindow fills one window and reports whether others follow.
func (r *run) readWindow(l *pipeline, p *readPosition) bool {
	if p.count >= 0 && p.token >= p.count {
		return false
	}
	var w *Window
	select {
	case w = <-l.freeWindows:
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
		l.computeQueue <- pipelineItem{err: err}
		return false
	}
	if w.count, w.position = n, p.firstQuery+p.token; n > 0 {
		l.computeQueue <- pipelineItem{window: w}
	}
	p.token += int64(n)
	return n == want
}

// computeWindows absorbs or reads windows through the state, in order. It calls between
// before each.
func (r *run) computeWindows(ctx context.Context, l *pipeline, between func()) error {
	for {
		if ctx.Err() != nil { // has priority over ready windows
			return ctx.Err()
		}
		between()
		var x pipelineItem
		select {
		case x = <-l.computeQueue:
		case <-ctx.Done():
			return ctx.Err()
		case <-l.failed:
			return nil // the writer returns the error
		}
		if x.window == nil {
			if x.err != nil && ctx.Err() != nil { // the reader was interrupted, too
				return ctx.Err()
			}
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
			default: // the last checkpoint is still being written
			}
		}
		l.writeQueue <- x
		if r.options.Progress != nil {
			r.options.Progress(Progress{DoneTokens: r.doneTokens(), TotalTokens: r.totalTokens(), ResumedTokens: r.resumed})
		}
	}
}

// stepWindow passes one window through the state.
func (r *run) stepWindow(w *Window) (err error) {
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
		err = fault.Mark(fault.ErrInput, fmt.Errorf("tokens %d to %d: %w", w.position, w.position+int64(w.count)-1, err))
	}
	if err != nil {
		return err
	}
	r.token += int64(w.count)
	r.inputSum = w.Input
	return nil
}

// writeWindows writes windows and checkpoints in order.
func (r *run) writeWindows(l *pipeline) (err error) {
	for x := range l.writeQueue {
		if err != nil {
			continue
		}
		if x.window != nil {
			if x.window.role&Queries != 0 {
				err = r.out.writeRows(x.window.out.Tokens(0, x.window.count), x.window.position)
			}
			l.freeWindows <- x.window
		}
		if x.checkpoint != nil && err == nil {
			err = r.saveCheckpoint(x.checkpoint)
			r.snapshotBuffers <- x.checkpoint.State
		}
		if err != nil {
			close(l.failed)
		}
	}
	return err
}
