package reproduce

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/train"
)

// arenaHour are lessons of the Long Range Arena at published lengths with the published
// model, in trainings below 90 minutes. ListOps has equal updates and equal seconds, bytes and
// pixels equal seconds. Smaller batches and a larger rate than published ones learn within that time.
// Expressions and reviews grow to their length: the mean over thousands of positions hides
// the few that matter from a new model.
func arenaHour() (list []*lesson, _ error) {
	for _, x := range []struct {
		name, preset         string
		length, vocab        int
		steps, batch, judged int
		first, firstBatch    int
		rate                 float64
		equal                bool
		methods              []method
	}{
		{"image", "lra-image", 1024, 256, 2000, 32, 0, 0, 0, 1e-3, true, []method{softmax, farThird2, farThird, linear, published2}},
		{"text", "lra-text", 4000, 257, 1400, 8, 0, 250, 128, 1e-3, true, []method{softmax, farThird2, farThird, linear, published2}},
		{"listops", "lra-listops", 2000, 18, 800, 16, 10000, 128, 256, 2e-3, false,
			[]method{softmax, farThird2, farThird, published1, published2, linear, taylorshift, performer}},
		{"listops-seconds", "lra-listops", 2000, 18, 800, 16, 10000, 128, 256, 2e-3, true, []method{softmax, farThird2, farThird}},
	} {
		l, err := presetLesson(x.name, x.preset, x.steps, nil)
		if err != nil {
			return nil, err
		}
		c := &l.Config
		c.Batch, c.FirstContext, c.FirstBatch = x.batch, x.first, x.firstBatch
		c.Rate, c.EvalSamples, c.FinalSamples = x.rate, 500, x.judged
		c.WarmUp = x.steps / 10
		c.EvalEvery, c.SaveEvery = x.steps/20, x.steps/20
		l.Methods, l.Seeds, l.EqualSeconds = x.methods, 1, x.equal
		l.Length, l.Vocab, l.Baseline = x.length, x.vocab, true
		list = append(list, l)
	}
	return list, nil
}

// arenaTable is an empty table of differences from softmax.
func arenaTable() report.Table {
	return report.Table{
		Title: "Accuracy minus softmax's, at equal updates and at equal seconds",
		Head:  []string{"task", "mechanism", "at the end", "updates", "at softmax's updates", "at softmax's seconds", "baseline"},
		Note: "Differences in points, ± the standard error of two shares of the judged samples. Seconds are updates times the time of an update, both measured in turns, so that other work of the machine does not count. Samples have the lengths of the task there. " +
			"At earlier updates and seconds the accuracy is of 500 validation samples. Baseline: the best of the task's own.",
	}
}

// lookAt returns the accuracy of the last look at the validation part up to an update.
func (x *result) lookAt(update float64) (value float64, samples int64) {
	for _, e := range x.Runs[0].Evals {
		if e.Eval == train.EvalLook && float64(e.Step) <= update {
			value, samples = e.Value, e.Samples
		}
	}
	return value, samples
}

// compareArena draws accuracy over seconds, and compares each mechanism with softmax at its
// updates and at its seconds. Where samples grow, only ends of trainings are compared: before
// them models have not seen the longest samples.
func (out *Outcome) compareArena(t *report.Table, s *scored, speeds []updateSpeed) {
	f := report.Figure{Title: s.Name + ": accuracy of the validation part by second", XLabel: "seconds of updates, measured in turns", YLabel: "accuracy", XLinear: true, YLinear: true}
	updates := func(x *result) int { return x.Runs[0].Steps[len(x.Runs[0].Steps)-1].Step }
	grows := s.Config.FirstContext > 0
	baseline := math.NaN()
	for _, b := range s.Baselines {
		baseline = math.Max(b.Score, baseline)
		if math.IsNaN(baseline) {
			baseline = b.Score
		}
	}
	base := s.resultOf(&softmax)
	end, seconds, isTimed := 0, 0.0, false
	if base != nil && len(base.Runs[0].Steps) > 0 {
		end = updates(base)
		seconds, isTimed = s.pace(speeds, softmax.Label)(end, end)
	}
	for i := range s.Results {
		x := &s.Results[i]
		pace := s.pace(speeds, x.Label)
		if len(x.Runs[0].Steps) == 0 {
			continue
		}
		own := updates(x)
		total, ok := pace(own, own)
		if !ok {
			continue
		}
		line := report.Series{Name: x.Label}
		for _, e := range x.Runs[0].Evals {
			if e.Eval == train.EvalLook {
				at, _ := pace(e.Step, own)
				line.X, line.Y = append(line.X, at), append(line.Y, e.Value)
			}
		}
		f.Series = append(f.Series, line)
		if !isTimed {
			continue
		}
		cells := []string{s.Name, x.Label, fmt.Sprintf("%.2f", 100*x.Value), fmt.Sprint(own)}
		for k, at := range []float64{float64(end), seconds / total * float64(own)} {
			// The end of a training is judged by the test part, all before it by looks.
			a, n := x.Value, x.Runs[0].Score.Samples
			b, m := base.Value, base.Runs[0].Score.Samples
			isEqual := k == 1 && s.EqualSeconds
			isLong := isEqual && grows && at < 0.95*float64(own) // more updates than these seconds hold
			isEnd := at >= 0.99*float64(own) || isEqual && at >= 0.95*float64(own) || isLong
			if !isEnd {
				a, n = x.lookAt(at)
				b, m = base.lookAt(float64(end))
			}
			isShort := at > 1.05*float64(own) && s.EqualSeconds // fewer updates than these seconds hold
			if n == 0 || m == 0 || x == base || isShort || grows && (!isEnd || k == 1 && !s.EqualSeconds) {
				cells = append(cells, none)
				continue
			}
			difference, deviation := 100*(a-b), 100*math.Sqrt(a*(1-a)/float64(n)+b*(1-b)/float64(m))
			cell, more := fmt.Sprintf("%+.2f ± %.2f", difference, deviation), 0.0
			if isLong {
				more = float64(own)/at - 1
				cell += fmt.Sprintf(", with %.0f %% more updates", 100*more)
			}
			cells = append(cells, cell)
			if x.Label == farThird2.Label || x.Label == farThird.Label {
				out.judgeArena(s, x.Label, k, difference, deviation, more)
			}
		}
		addRow(t, append(cells, fmt.Sprintf("%.2f", 100*baseline))...)
	}
	if len(f.Series) > 0 {
		out.Figures = append(out.Figures, Drawing{s.Name + "-accuracy-by-seconds", f})
	}
}

// judgeArena finds whether near field with far field reaches what is required: at equal
// updates (0) of ListOps no more than a point and a standard error below softmax, at equal
// seconds (1) more than softmax. more is the share of updates beyond those seconds, which help.
func (out *Outcome) judgeArena(s *scored, label string, k int, difference, deviation, more float64) {
	least, reached, required := 0.0, difference > 0, "above 0"
	if k == 0 {
		if s.EqualSeconds {
			return
		}
		least = -1 - deviation
		reached, required = difference >= least, "at least -1 less a standard error"
	}
	verdict := "not reached"
	if reached {
		verdict = "reached"
	}
	if len(s.Results[0].Runs) < 2 || math.Abs(difference-least) < 2*deviation {
		verdict += ", within noise"
	}
	if more > 0 {
		if reached {
			verdict = "not measured"
		}
		verdict += fmt.Sprintf(": it made %.0f %% more updates than these seconds hold", 100*more)
	}
	out.find("%s at equal %s: %s minus softmax %+.2f ± %.2f points, %s required: %s.", s.Name, []string{"updates", "seconds"}[k], label, difference, deviation, required, verdict)
}
