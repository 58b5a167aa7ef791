package progress

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/stream"
)

// Stream shows on standard error how far a stream is: as a bar on a terminal, and as lines every
// few seconds elsewhere.
type Stream struct {
	w     io.Writer
	tty   bool
	bar   *progressbar.ProgressBar // of a terminal, once the number of tokens is known
	start time.Time
	spoke time.Time
	all   int64
}

// NewStream returns a Stream that has shown nothing yet.
func NewStream(e *env.Env) *Stream {
	p := &Stream{w: e.Notes(), tty: e.IsTerminal, start: time.Now()}
	p.spoke = p.start
	return p
}

// Show is called after every window.
func (p *Stream) Show(s stream.Progress) {
	p.all = s.TotalTokens
	now := time.Now()
	speed := float64(s.DoneTokens-s.ResumedTokens) / max(now.Sub(p.start).Seconds(), 1e-9)
	text := fmt.Sprintf("%.3g tokens/s", speed)
	if p.tty {
		if p.bar == nil {
			p.bar = NewBar(p.w, s.TotalTokens, progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(false))
		}
		// A bar that cannot be drawn is no reason to stop.
		p.bar.Describe(text + p.formatTimeLeft(s, speed))
		_ = p.bar.Set64(s.DoneTokens)
		return
	}
	if now.Sub(p.spoke) >= LinePeriod {
		p.spoke = now
		fmt.Fprintf(p.w, "token %d%s  %s%s\n", s.DoneTokens, p.Share(), text, p.formatTimeLeft(s, speed))
	}
}

// formatTimeLeft returns the remaining time as text, "" if it is unknown.
func (p *Stream) formatTimeLeft(s stream.Progress, speed float64) string {
	if s.TotalTokens < 0 || speed <= 0 {
		return ""
	}
	left := time.Duration(float64(s.TotalTokens-s.DoneTokens) / speed * float64(time.Second))
	return fmt.Sprintf("  %s left", left.Round(time.Second))
}

// Share returns the number of all tokens as text, "" if it is unknown.
func (p *Stream) Share() string {
	if p.all <= 0 {
		return ""
	}
	return fmt.Sprintf(" of %d", p.all)
}

// Clear makes room for something else.
func (p *Stream) Clear() { ClearBar(p.bar) }
