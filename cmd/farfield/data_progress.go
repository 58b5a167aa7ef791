package main

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// transfer shows on standard error how much of a file is there: a bar on a
// terminal, lines every few seconds elsewhere.
type transfer struct {
	e     *env
	w     io.Writer
	bar   *progressbar.ProgressBar // nil: lines, or no file yet
	file  string
	spoke time.Time
}

func newTransfer(e *env) *transfer { return &transfer{e: e, w: e.notes(), spoke: time.Now()} }

// bytes is called with the bytes of a file that are there; total is 0 where it is
// not known.
func (t *transfer) bytes(file string, done, total int64) {
	text := size(done)
	if total > 0 {
		text += " of " + size(total)
	}
	t.show(file, text, done, total, true)
}

// items is called with the samples of a file that are made.
func (t *transfer) items(file string, done, total int) {
	t.show(file, fmt.Sprintf("%d of %d", done, total), int64(done), int64(total), false)
}

func (t *transfer) show(file, text string, done, total int64, bytes bool) {
	if !t.e.tty {
		if now := time.Now(); now.Sub(t.spoke) >= lineEvery {
			t.spoke = now
			fmt.Fprintf(t.w, "%s: %s\n", file, text)
		}
		return
	}
	if file != t.file {
		t.finish()
		t.file = file
		if total == 0 {
			total = -1 // a spinner
		}
		t.bar = newBar(t.w, total, progressbar.OptionShowCount(), progressbar.OptionShowBytes(bytes),
			progressbar.OptionSetPredictTime(true), progressbar.OptionSetDescription(file))
	}
	// A bar that cannot be drawn is no reason to stop.
	_ = t.bar.Set64(done)
}

// finish makes room for something else.
func (t *transfer) finish() {
	if t.bar != nil {
		_ = t.bar.Clear()
		t.bar = nil
	}
}
