package main

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/farfield-ml/farfield/stream"
)

// streamProgress shows on standard error how a stream goes: a bar on a terminal,
// lines every few seconds elsewhere.
type streamProgress struct {
	w     io.Writer
	tty   bool
	bar   *progressbar.ProgressBar // of a terminal, once the number of tokens is known
	start time.Time
	spoke time.Time
	all   int64
}

func newStreamProgress(e *env) *streamProgress {
	p := &streamProgress{w: e.notes(), tty: e.tty, start: time.Now()}
	p.spoke = p.start
	return p
}

// show is called after every window.
func (p *streamProgress) show(s stream.Progress) {
	p.all = s.Total
	now := time.Now()
	speed := float64(s.Done-s.Resumed) / max(now.Sub(p.start).Seconds(), 1e-9)
	text := fmt.Sprintf("%.3g tokens/s", speed)
	if p.tty {
		if p.bar == nil {
			p.bar = newBar(p.w, s.Total, progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(false))
		}
		// A bar that cannot be drawn is no reason to stop.
		p.bar.Describe(text + p.left(s, speed))
		_ = p.bar.Set64(s.Done)
		return
	}
	if now.Sub(p.spoke) >= lineEvery {
		p.spoke = now
		fmt.Fprintf(p.w, "token %d%s  %s%s\n", s.Done, p.of(), text, p.left(s, speed))
	}
}

// left says how long the rest takes, if anybody knows.
func (p *streamProgress) left(s stream.Progress, speed float64) string {
	if s.Total < 0 || speed <= 0 {
		return ""
	}
	left := time.Duration(float64(s.Total-s.Done) / speed * float64(time.Second))
	return fmt.Sprintf("  %s left", left.Round(time.Second))
}

// of says how many tokens there are, if anybody knows.
func (p *streamProgress) of() string {
	if p.all <= 0 {
		return ""
	}
	return fmt.Sprintf(" of %d", p.all)
}

// clear makes room for something else.
func (p *streamProgress) clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
