package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// recordProgress shows on standard error how far records are: a bar on a terminal, lines
// every few seconds elsewhere.
type recordProgress struct {
	w     io.Writer
	bar   *progressbar.ProgressBar // nil: lines
	read  int64                    // bytes
	all   int64                    // bytes of the input; 0: unknown
	start time.Time
	spoke time.Time
}

// newRecordProgress shows the way through so many bytes; 0: unknown. Results that go to
// a terminal are their own progress.
func newRecordProgress(e *env, size int64, printed bool) *recordProgress {
	p := &recordProgress{w: e.notes(), start: time.Now(), all: size}
	p.spoke = p.start
	if printed && terminalWidth(e.stdout) > 0 {
		p.w = io.Discard
	} else if e.tty && p.all > 0 {
		p.bar = newBar(p.w, p.all, progressbar.OptionShowBytes(true), progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true))
	}
	return p
}

// show is called after every record.
func (p *recordProgress) show(records int64) {
	if p.bar != nil {
		// A bar that cannot be drawn is no reason to stop.
		_ = p.bar.Set64(min(p.read, p.all))
		return
	}
	now := time.Now()
	if now.Sub(p.spoke) < lineEvery {
		return
	}
	p.spoke = now
	text := fmt.Sprintf("%d records", records)
	if p.all > 0 && p.read > 0 {
		left := time.Duration(float64(now.Sub(p.start)) * float64(p.all-p.read) / float64(p.read))
		text += fmt.Sprintf("  %.0f %%  %s left", 100*float64(p.read)/float64(p.all), max(left, 0).Round(time.Second))
	}
	fmt.Fprintln(p.w, text)
}

func (p *recordProgress) clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}

// terminalWidth returns the columns of the terminal that w is; 0: it is none.
func terminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}
