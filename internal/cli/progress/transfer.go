package progress

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
)

// Transfer shows on standard error how much of a file is there: as a bar on a terminal, and as
// lines every few seconds elsewhere.
type Transfer struct {
	e     *env.Env
	w     io.Writer
	bar   *progressbar.ProgressBar // nil: lines, or no file yet
	file  string
	spoke time.Time
}

// NewTransfer returns a Transfer that has shown nothing yet.
func NewTransfer(e *env.Env) *Transfer { return &Transfer{e: e, w: e.Notes(), spoke: time.Now()} }

// ShowBytes shows that done bytes of a file are there; total is 0 if it is not known.
func (t *Transfer) ShowBytes(file string, done, total int64) {
	text := display.FormatSize(done)
	if total > 0 {
		text += " of " + display.FormatSize(total)
	}
	t.show(file, text, done, total, true)
}

// ShowItems shows that done of total samples of a file are made.
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

// Finish removes the bar, so that something else can be printed.
func (t *Transfer) Finish() {
	ClearBar(t.bar)
	t.bar = nil
}
