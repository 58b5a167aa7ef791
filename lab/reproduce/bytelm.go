package reproduce

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/train"
)

var byteLM = Row{
	Name:   "bytelm",
	Doc:    "bits per byte of a text by context, position, update and second: softmax, its window alone, a near field exact with a far field factorised, fastmax as published, and other linear mechanisms",
	Source: "Mahoney's enwik8 and War and Peace",
	Claim:  "no table of this setting; Reformer takes 1.05 bits a byte of enwik8, with 12 layers and all of it to learn from (Kitaev et al. 2020, arXiv 2001.04451)",
	Seeds:  true, Tunes: true, Text: true,
	pieces: byteLessons.pieces, outcome: byteLessons.outcome(byteFindings),
}

// byteMethods are compared with paired seeds, byteOthers beside them with one.
var (
	byteMethods = []method{softmax, windowAlone, nearFar2, farThird, published2}
	byteOthers  = []method{single(linear), single(mamba2), single(retnet)}
)

// byteEqual is the shortest context at which mechanisms are compared at equal seconds.
const byteEqual = 1 << 14

// byteUpdate are the tokens of an update, as long as a window is not longer.
const byteUpdate = 4096

// byteTexts are what is read: data sets of task.ByteLM, or the user's own file.
func byteTexts(o *Options) []struct{ Name, Data string } {
	type texts = []struct{ Name, Data string }
	if o.Text != "" {
		return texts{{"own", o.Text}}
	}
	all := texts{{"enwik8", "enwik8"}, {"book", "warandpeace"}}
	return pick(o.Budget, all[:1], all[:1], all)
}

var byteLessons = lessons(func(o *Options) (list []*lesson, _ error) {
	all := append(byteMethods[:len(byteMethods):len(byteMethods)], pick(o.Budget, nil, byteOthers, byteOthers)...)
	for _, text := range byteTexts(o) {
		for _, context := range pick(o.Budget, []int{1 << 10, 1 << 12}, []int{1 << 10, 1 << 12, 1 << 14}, []int{1 << 10, 1 << 12, 1 << 14}) {
			tokens := pick(o.Budget, 1<<20, 5_000_000, 20_000_000)
			if context >= byteEqual {
				tokens = max(tokens, 10_000_000)
			}
			l, err := presetLesson(fmt.Sprintf("%s-%dk", text.Name, context>>10), "default", byteUpdates(context, tokens), map[string]string{"data": text.Data})
			if err != nil {
				return nil, err
			}
			c := &l.Config
			l.growBytes(context)
			if o.Budget == Full {
				c.Model.Layers, c.Model.Width, c.Model.Heads = 6, 256, 16
			}
			l.Methods, l.Seeds = all, pick(o.Budget, 1, 3, 3)
			if l.EqualSeconds = context >= byteEqual; l.EqualSeconds {
				l.Methods = nil
				for _, m := range all {
					l.Methods = append(l.Methods, single(m))
				}
			}
			l.Baseline, l.look = true, byPosition
			list = append(list, l)
		}
	}
	return list, nil
})

// growBytes gives the lesson windows of bytes that grow to a context.
func (l *lesson) growBytes(context int) {
	c := &l.Config
	c.Model.Context = context
	c.Batch, c.FirstBatch = max(1, byteUpdate/context), byteUpdate/c.FirstContext
	c.EvalSamples, c.FinalSamples = (1<<15)/context, (1<<18)/context
	l.Length, l.Vocab = context, 256
}

// byteUpdates returns the number of updates that read the given tokens in windows that grow
// to a context, equally many of each length.
func byteUpdates(context, tokens int) int {
	lengths, updates := 0., 0.
	for n := 256; n <= context; n *= 2 {
		lengths++
		updates += float64(tokens) / float64(max(byteUpdate, n))
	}
	return int(math.Ceil(updates / lengths))
}

// byPosition is the loss of the part that the run is judged by, by position.
func byPosition(t *train.Trainer) (any, error) {
	src := t.Source()
	spec := src.Spec()
	_, detail, err := train.Evaluate(context.Background(), t.Model(), src, spec.JudgedSplit(), t.Config().FinalSamples)
	return detail.Positions, err
}

// bitsOf is the mean of the buckets that hold the predicate, in bits of a byte.
func bitsOf(list []train.Bucket, holds func(train.Bucket) bool) float64 {
	sum, n := 0., 0.
	for _, b := range list {
		if holds(b) {
			sum += b.Loss / math.Ln2 * float64(b.Tokens)
			n += float64(b.Tokens)
		}
	}
	return sum / n
}

// byteFindings puts all contexts into one table, and draws bits by position, by update
// and by second.
func byteFindings(out *Outcome, list []scored) error {
	t := report.Table{
		Title: "Bits per byte", Head: []string{"text", "context", "mechanism", "bits per byte", "± of seeds", "first 63 bytes", "last half", "seconds"},
		Note: "Of bytes that are not learned from, in windows that each begin anew: all, those with at most 63 before them, and those with half a context or more. " +
			"Models of a text and context learn from the same bytes, in windows that grow from 256 to the context; at 16384 from as many of them as softmax's time allows. Baselines are tables of the bytes that models learn from, 64 million tokens at most. The last three columns are of the first seed.",
	}
	differences := pairedTable("bits per byte")
	for i := range list {
		s := &list[i]
		window := s.Config.Model.Context
		name, _, _ := strings.Cut(s.Name, "-")
		title := fmt.Sprintf("%s, context %d: bits per byte", name, window)
		position := report.Figure{Title: title + " by position", XLabel: "bytes before", YLabel: "bits per byte", YLinear: true}
		step := report.Figure{Title: title + " of the validation part by update", XLabel: "updates", YLabel: "bits per byte", XLinear: true, YLinear: true}
		norms := report.Figure{Title: fmt.Sprintf("%s, context %d: norm of the gradient by update", name, window), XLabel: "updates", YLabel: "norm, mean of the last twentieth", XLinear: true}
		second := report.Figure{Title: title + " of the validation part by second", XLabel: "seconds", YLabel: "bits per byte", XLinear: true, YLinear: true}
		var all []string
		for _, x := range s.Results {
			buckets, err := convert[[]train.Bucket](x.Runs[0].Look)
			if err != nil {
				return err
			}
			line := report.Series{Name: x.Label}
			for _, b := range buckets {
				line.X = append(line.X, math.Sqrt(float64(b.First+1)*float64(b.Last+1)))
				line.Y = append(line.Y, b.Loss/math.Ln2)
			}
			position.Series = append(position.Series, line)
			norms.Series = append(norms.Series, gradientNorms(&x))
			var updates, seconds, bits []float64
			for _, e := range x.Runs[0].Evals {
				if e.Eval == train.EvalLook {
					updates, seconds, bits = append(updates, float64(e.Step)), append(seconds, e.Elapsed), append(bits, e.Bits)
				}
			}
			if len(bits) > 0 {
				step.Series = append(step.Series, report.Series{Name: x.Label, X: updates, Y: bits})
				second.Series = append(second.Series, report.Series{Name: x.Label, X: seconds, Y: bits})
			}
			var of []float64
			for _, run := range x.Runs {
				of = append(of, run.Score.Bits)
			}
			value, deviation := mean(of)
			spread := none
			if len(of) > 1 {
				spread = fmt.Sprintf("%.3f", deviation)
			}
			last := x.Runs[0].Steps[len(x.Runs[0].Steps)-1]
			addRow(&t, name, fmt.Sprint(window), x.Label, fmt.Sprintf("%.3f", value), spread,
				digits(bitsOf(buckets, func(b train.Bucket) bool { return b.Last < 63 })),
				digits(bitsOf(buckets, func(b train.Bucket) bool { return b.First >= window/2-1 })), digits(last.Elapsed))
			all = append(all, fmt.Sprintf("%s %.3f", x.Label, value))
		}
		for _, b := range s.Baselines {
			addRow(&t, name, fmt.Sprint(window), b.Name+" (baseline)", fmt.Sprintf("%.3f", b.Score/math.Ln2), none, none, none, none)
		}
		out.Figures = append(out.Figures, Drawing{s.Name + "-by-position", position}, Drawing{s.Name + "-gradients", norms})
		if len(step.Series) > 0 {
			out.Figures = append(out.Figures, Drawing{s.Name + "-bits-by-update", step}, Drawing{s.Name + "-bits-by-second", second})
		}
		out.find("%s: %s.", title, listed(all))
		out.pairBytes(&differences, s, nearFar2, farThird, windowAlone)
	}
	first := []report.Table{t}
	if len(differences.Rows) > 0 {
		first = append(first, differences)
	}
	out.Tables = append(first, out.Tables...)
	return nil
}

// gradientNorms are the norms of the gradient over a training, before they are clipped.
func gradientNorms(x *result) report.Series {
	line := report.Series{Name: x.Label}
	for _, s := range x.Runs[0].Steps {
		if s.GradNorm > 0 {
			line.X, line.Y = append(line.X, float64(s.Step)), append(line.Y, s.GradNorm)
		}
	}
	line.Y = running(line.Y, max(1, len(line.Y)/smoothed))
	return line
}

// pairBytes compares methods with softmax and with the near field alone.
func (out *Outcome) pairBytes(t *report.Table, s *scored, methods ...method) {
	most, strict := 0.005, false
	if s.EqualSeconds {
		most, strict = 0, true
	}
	var missed []string
	judged := 0
	for i := range methods {
		a := &methods[i]
		for _, b := range []*method{&softmax, &windowAlone} {
			x, y := s.resultOf(a), s.resultOf(b)
			if a.Label == b.Label || x == nil || y == nil {
				continue
			}
			p := comparePairs(x, y, func(r *learned) float64 { return r.Score.Bits })
			if p.seeds == 0 {
				continue
			}
			required := none
			if a.Label != windowAlone.Label {
				required = p.judge(most, strict)
				if judged++; !p.holds(most, strict) {
					missed = append(missed, fmt.Sprintf("%s minus %s %s, %s", p.a, p.b, &p, required))
				}
			}
			addRow(t, s.Name, p.a+" minus "+p.b, p.String(), required)
		}
	}
	switch {
	case len(missed) > 0:
		out.find("%s, bits per byte, differences: %d of %d are as required, but not %s.", s.Name, judged-len(missed), judged, listed(missed))
	case judged > 0:
		out.find("%s, bits per byte, differences: all %d are as required.", s.Name, judged)
	}
}
