package progress

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
)

// Records shows on standard error how many records are done: as a bar on a terminal, and as lines
// every few seconds elsewhere.
type Records struct {
	w     io.Writer
	bar   *progressbar.ProgressBar // nil: lines
	Read  int64                    // bytes of the records that are done, and of what is between
	all   int64                    // bytes of the input; 0: unknown
	base  int64                    // bytes of skipped records
	start time.Time
	spoke time.Time
}

// NewRecords returns the progress through size bytes; 0: unknown. It shows nothing if results are
// printed to the same terminal.
func NewRecords(e *env.Env, size int64, printed bool) *Records {
	p := &Records{w: e.Notes(), start: time.Now(), all: size}
	p.spoke = p.start
	if printed && TerminalWidth(e.Stdout) > 0 {
		p.w = io.Discard
	} else if e.IsTerminal && p.all > 0 {
		p.bar = NewBar(p.w, p.all, progressbar.OptionShowBytes(true), progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true))
	}
	return p
}

// Skip is called after every record that an earlier run has done.
func (p *Records) Skip() { p.base, p.start = p.Read, time.Now() }

// Show is called after every record.
func (p *Records) Show(records int64) {
	if p.bar != nil {
		// A bar that cannot be drawn is no reason to stop.
		_ = p.bar.Set64(min(p.Read, p.all))
		return
	}
	now := time.Now()
	if now.Sub(p.spoke) < LinePeriod {
		return
	}
	p.spoke = now
	text := display.Pluralise(int(records), "record")
	if p.all > 0 && p.Read > p.base {
		left := time.Duration(float64(now.Sub(p.start)) * float64(p.all-p.Read) / float64(p.Read-p.base))
		text += fmt.Sprintf("  %.0f %%  %s left", 100*float64(p.Read)/float64(p.all), max(left, 0).Round(time.Second))
	}
	fmt.Fprintln(p.w, text)
}

// Clear removes the bar.
func (p *Records) Clear() { ClearBar(p.bar) }

// TerminalWidth returns the width of the terminal w in columns, or 0 if w is no terminal.
func TerminalWidth(w io.Writer) int {
	f := display.FileOf(w)
	if f == nil {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}
