package program

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
)

// results is standard output, which remembers its first error. A pipe, terminal or device may
// block a write for ever. One goroutine writes to it, and Write gives up after an interrupt.
type results struct {
	ctx context.Context
	w   io.Writer

	mu  sync.Mutex
	err error

	// Of a file that may block.
	pieces  chan []byte // nil: Write calls w
	written chan writeResult
	buffer  []byte // of the goroutine until it is written
	stalled error  // of a piece that was given up
}

// writeResult is what a write returns.
type writeResult struct {
	n   int
	err error
}

// Limits of writes to files that may block.
const (
	writeGrace = time.Second // for a piece, after an interrupt
	pieceSize  = 1 << 16     // bytes
)

// newResults returns the results of a verb, whose context is ctx.
func newResults(ctx context.Context, w io.Writer) *results {
	r := &results{ctx: ctx, w: w}
	if f := r.File(); f != nil {
		if info, err := f.Stat(); err == nil && !info.Mode().IsRegular() {
			r.pieces, r.written = make(chan []byte), make(chan writeResult, 1)
			go r.serve() // until the program ends
		}
	}
	return r
}

// File returns the file that results are written to, or nil.
func (r *results) File() *os.File { return display.FileOf(r.w) }

// serve writes pieces.
func (r *results) serve() {
	for p := range r.pieces {
		n, err := r.w.Write(p)
		r.written <- writeResult{n, err}
	}
}

// Write writes p. It returns an env.Interruption if the context has ended and the file does not take a piece.
func (r *results) Write(p []byte) (n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pieces == nil {
		n, err = r.w.Write(p)
	}
	for r.pieces != nil && n < len(p) && err == nil {
		var took int
		took, err = r.writePiece(p[n:min(len(p), n+pieceSize)])
		n += took
	}
	if r.err == nil {
		r.err = err
	}
	return n, err
}

// writePiece lets the goroutine write a copy of p.
func (r *results) writePiece(p []byte) (int, error) {
	if r.stalled != nil {
		return 0, r.stalled
	}
	r.buffer = append(r.buffer[:0], p...)
	r.pieces <- r.buffer
	var x writeResult
	select {
	case x = <-r.written:
	case <-r.ctx.Done():
		select {
		case x = <-r.written:
		case <-time.After(writeGrace):
			r.stalled = env.Interruption{Err: os.ErrDeadlineExceeded, Text: fmt.Sprintf("interrupted; standard output did not take %d bytes within %v", len(p), writeGrace)}
			return 0, r.stalled
		}
	}
	return x.n, x.err
}
