package progress

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/train"
)

// Training shows on standard error how far a training is: as a bar on a terminal, and as lines
// every few seconds elsewhere.
type Training struct {
	w     io.Writer
	bar   *progressbar.ProgressBar // nil: lines
	last  int                      // step
	first int                      // steps made before
	start time.Time
	spoke time.Time
	speed float64 // tokens a second, smoothed
}

// LinePeriod is the time between two lines if there is no terminal.
const LinePeriod = 5 * time.Second

// NewTraining returns a Training that shows the steps from first to last.
func NewTraining(e *env.Env, first, last int) *Training {
	p := &Training{w: e.Notes(), first: first, last: last, start: time.Now()}
	p.spoke = p.start
	if e.IsTerminal {
		p.bar = NewBar(e.Notes(), int64(last-first), progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true))
	}
	return p
}

// step is called after every update.
func (p *Training) step(s train.Step) {
	if p.speed == 0 {
		p.speed = s.Speed
	}
	p.speed += (s.Speed - p.speed) / 10
	text := fmt.Sprintf("loss %s  %.0f tokens/s", formatLoss(s.Loss), p.speed)
	if p.bar != nil {
		// A bar that cannot be drawn is no reason to stop training.
		p.bar.Describe(text)
		_ = p.bar.Add(1)
	} else if now := time.Now(); now.Sub(p.spoke) >= LinePeriod || s.Step == p.last {
		p.spoke = now
		left := now.Sub(p.start) / time.Duration(s.Step-p.first) * time.Duration(p.last-s.Step)
		fmt.Fprintf(p.w, "step %d of %d  %s  %s left\n", s.Step, p.last, text, left.Round(time.Second))
	}
	if s.Step == p.last {
		ClearBar(p.bar)
		fmt.Fprintln(p.w, "evaluating")
	}
}

// formatLoss formats a loss with three decimals, or with three digits where the decimals are 0.
func formatLoss(x float64) string {
	if x > 0 && x < 0.0005 {
		return fmt.Sprintf("%.3g", x)
	}
	return fmt.Sprintf("%.3f", x)
}

// eval is called after every look at the validation part.
func (p *Training) eval(v train.Eval) {
	ClearBar(p.bar)
	what, loss, score := "validation", fmt.Sprintf("%.3f", v.Loss), fmt.Sprintf("%s %s", v.Metric, display.FormatValue(v.Metric, v.Value))
	if v.Metric == task.MSE {
		loss = display.FormatValue(v.Metric, v.Loss)
	}
	if v.Split == task.Test.String() {
		what = "test"
	}
	if v.HasBits() {
		score = fmt.Sprintf("%.3f bits per byte", v.Bits)
	}
	fmt.Fprintf(p.w, "step %d of %d  %s (%s): loss %s, %s\n", v.Step, p.last, what, v.Eval, loss, score)
}

// Observer returns the callbacks by which a training reports to p.
func (p *Training) Observer() train.Observer {
	return train.Observer{Step: p.step, Eval: p.eval, Progress: p.part}
}

// part is called on the way through a long update.
func (p *Training) part(done, all int) {
	text := fmt.Sprintf("update at %.0f %%", 100*float64(done)/float64(all))
	if p.bar != nil {
		p.bar.Describe(text)
	} else if now := time.Now(); now.Sub(p.spoke) >= LinePeriod {
		p.spoke = now
		fmt.Fprintln(p.w, text)
	}
}
