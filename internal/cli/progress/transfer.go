package progress

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
)

// Transfer shows on standard error how much of a file is there: a bar on a
// terminal, lines every few seconds elsewhere.
type Transfer struct {
	e     *env.Env
	w     io.Writer
	bar   *progressbar.ProgressBar // nil: lines, or no file yet
	file  string
	spoke time.Time
}

// NewTransfer returns the progress of a download on standard error.
func NewTransfer(e *env.Env) *Transfer { return &Transfer{e: e, w: e.Notes(), spoke: time.Now()} }

// ShowBytes is called with the bytes of a file that are there; total is 0 where it is
// not known.
func (t *Transfer) ShowBytes(file string, done, total int64) {
	text := display.FormatSize(done)
	if total > 0 {
		text += " of " + display.FormatSize(total)
	}
	t.show(file, text, done, total, true)
}

// ShowItems is called with the samples of a file that are made.
func (t *Transfer) ShowItems(file string, done, total int) {
	t.show(file, fmt.Sprintf("%d of %d", done, total), int64(done), int64(total), false)
}

func (t *Transfer) show(file, text string, done, total int64, bytes bool) {
	if !t.e.IsTerminal {
		if now := time.Now(); now.Sub(t.spoke) >= LinePeriod {
			t.spoke = now
			fmt.Fprintf(t.w, "%s: %s\n", file, text)
		}
		return
	}
	if file != t.file {
		t.Finish()
		t.file = file
		if total == 0 {
			total = -1 // a spinner
		}
		t.bar = NewBar(t.w, total, progressbar.OptionShowCount(), progressbar.OptionShowBytes(bytes),
			progressbar.OptionSetPredictTime(true), progressbar.OptionSetDescription(file))
	}
	// A bar that cannot be drawn is no reason to stop.
	_ = t.bar.Set64(done)
}

// Finish makes room for something else.
func (t *Transfer) Finish() {
	ClearBar(t.bar)
	t.bar = nil
}
