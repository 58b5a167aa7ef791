package reproduce

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/train"
)

var needle = Row{
	Name:   "needle",
	Doc:    "accuracy of recalling a line of a text over its distance, learned at 4096 bytes and asked at 4096, 16384 and 65536: softmax, its window alone, near field with far field, fastmax as published, linear",
	Source: "a task of this project; lines of keys in long texts are asked since Mohtashami and Jaggi 2023, Landmark Attention, arXiv 2305.16300",
	Claim:  "no table of this setting",
	Seeds:  true, Tunes: true,
	pieces: needleLessons.pieces, outcome: needleLessons.outcome(needleFindings),
}

// needleContext is the longest window of a training.
const needleContext = 1 << 12

// needleAsked are the windows that trained models are asked in, by budget how many of each.
var needleAsked = []struct {
	length  int
	windows [3]int
}{
	{needleContext, [3]int{16, 64, 256}},
	{1 << 14, [3]int{8, 32, 128}},
	{1 << 16, [3]int{2, 8, 32}},
}

var needleLessons = lessons(func(o *Options) ([]*lesson, error) {
	l, err := presetLesson("needle", "needle", pick(o.Budget, 600, 3000, 10000), map[string]string{"data": "enwik8"})
	if err != nil {
		return nil, err
	}
	l.Methods, l.Seeds = []method{softmax, farThird, windowAlone, nearFar2, published2, linear}, pick(o.Budget, 1, 3, 3)
	l.Length, l.Vocab, l.Baseline = needleContext, 256, true
	l.look = func(t *train.Trainer) (any, error) { return askNeedles(t, o.Budget) }
	return []*lesson{l}, nil
})

// needleAnswers are the answers of a model in windows of one length.
type needleAnswers struct {
	Length  int            `json:"length"`
	Windows int            `json:"windows"`
	Seconds float64        `json:"seconds"`
	Bytes   int64          `json:"bytes"` // that the state of a sequence holds
	Buckets []needleBucket `json:"by_distance"`
}

// needleBucket counts the questions at distances from First to 2·First - 1.
type needleBucket struct {
	First      int `json:"first"`
	Questions  int `json:"questions"`
	Values     int `json:"values"` // all bytes of the value are right
	RightBytes int `json:"right"`  // bytes
	AskedBytes int `json:"asked"`  // bytes
}

// askNeedles asks a trained model, whose state the tokens of a window pass through.
func askNeedles(t *train.Trainer, budget Budget) (list []needleAnswers, _ error) {
	src := t.Source().(task.WindowSource)
	for _, of := range needleAsked {
		a := needleAnswers{Length: of.length, Windows: of.windows[budget]}
		start := time.Now()
		for i := range a.Windows {
			var s task.Sample
			if err := src.WithWindow(of.length).Sample(&s, task.Test, i); err != nil {
				return nil, err
			}
			if err := a.ask(t.Model(), &s); err != nil {
				return nil, err
			}
		}
		a.Seconds = time.Since(start).Seconds()
		list = append(list, a)
	}
	return list, nil
}

// ask asks the questions of a window, each byte after the right bytes before it. All bytes of
// a value are right exactly if the model would write the value.
func (a *needleAnswers) ask(m *model.Model, s *task.Sample) error {
	session, err := m.NewSession(1)
	if err != nil {
		return err
	}
	fed := 0
	for _, place := range task.FindNeedles(s) {
		right, asked := 0, 0
		for at := place.Question - 1; s.Labels[at] >= 0; at++ {
			logits, err := session.Step(context.Background(), s.Tokens[fed:at+1], at+1-fed)
			if err != nil {
				return err
			}
			fed = at + 1
			best := 0
			for token, x := range logits {
				if x > logits[best] {
					best = token
				}
			}
			if asked++; int32(best) == s.Labels[at] {
				right++
			}
		}
		a.add(place.Distance(), right, asked)
	}
	a.Bytes = session.Bytes()
	return nil
}

// add counts a question with the number of right bytes.
func (a *needleAnswers) add(distance, right, asked int) {
	first := 1 << (bits.Len(uint(distance)) - 1)
	at := 0
	for at < len(a.Buckets) && a.Buckets[at].First < first {
		at++
	}
	if at == len(a.Buckets) || a.Buckets[at].First != first {
		a.Buckets = append(a.Buckets[:at], append([]needleBucket{{First: first}}, a.Buckets[at:]...)...)
	}
	b := &a.Buckets[at]
	b.Questions++
	b.RightBytes += right
	b.AskedBytes += asked
	if right == asked {
		b.Values++
	}
}

// needleRequired are the shares of values that near field with far field is to recall, by the
// length of windows. At 65536 it is drawn only.
var needleRequired = map[int]float64{1 << 12: 0.95, 1 << 14: 0.80}

// needleFindings draws accuracy over distance, and puts all lengths into one table.
func needleFindings(out *Outcome, list []scored) error {
	t := report.Table{
		Title: "Lines recalled, by length of the window", Head: []string{"window", "mechanism", "values right", "± of seeds", "bytes right", "questions", "seconds a window", "state, kB"},
		Note: fmt.Sprintf("Learned in windows of 256 to %d bytes. A value is right if all of its four bytes are; a value by chance is right once in 10,000, a byte once in ten. ", needleContext) +
			"Windows pass through the state of a model piece by piece, for softmax through a cache of keys and values. Seconds of one window, by the code that made it, beside other work.",
	}
	s := &list[0]
	for i, of := range needleAsked {
		f := report.Figure{Title: fmt.Sprintf("Values recalled over distance, windows of %d bytes", of.length), XLabel: "bytes from line to question", YLabel: "share of values", YLinear: true}
		var right []string
		for _, x := range s.Results {
			sum, byDistance := needleBucket{}, map[int]*needleBucket{}
			var shares []float64
			seconds, state := 0.0, 0.0
			for k := range x.Runs {
				all, err := convert[[]needleAnswers](x.Runs[k].Look)
				if err != nil {
					return err
				}
				a := all[i]
				values, questions := 0, 0
				for _, b := range a.Buckets {
					if byDistance[b.First] == nil {
						byDistance[b.First] = &needleBucket{First: b.First}
					}
					for _, to := range []*needleBucket{&sum, byDistance[b.First]} {
						to.Questions, to.Values, to.RightBytes, to.AskedBytes = to.Questions+b.Questions, to.Values+b.Values, to.RightBytes+b.RightBytes, to.AskedBytes+b.AskedBytes
					}
					values, questions = values+b.Values, questions+b.Questions
				}
				shares = append(shares, float64(values)/float64(questions))
				seconds, state = seconds+a.Seconds/float64(a.Windows*len(x.Runs)), float64(a.Bytes)
			}
			share, deviation := mean(shares)
			spread := none
			if len(shares) > 1 {
				spread = percent(deviation)
			}
			addRow(&t, fmt.Sprint(of.length), x.Label, percent(share), spread, percent(float64(sum.RightBytes)/float64(sum.AskedBytes)), fmt.Sprint(sum.Questions), digits(seconds), digits(state/1e3))
			text := x.Label + " " + percent(share)
			if required, found := needleRequired[of.length]; found && strings.HasPrefix(x.Label, "near-far") {
				verdict := "not reached"
				if share >= required {
					verdict = "reached"
				}
				text += fmt.Sprintf(" (at least %.0f %% required: %s)", 100*required, verdict)
			}
			right = append(right, text)
			line := report.Series{Name: x.Label}
			for first := 1; first <= of.length; first *= 2 {
				if b := byDistance[first]; b != nil {
					line.X = append(line.X, float64(first)*math.Sqrt2)
					line.Y = append(line.Y, float64(b.Values)/float64(b.Questions))
				}
			}
			f.Series = append(f.Series, line)
		}
		out.Figures = append(out.Figures, Drawing{fmt.Sprintf("recall-%dk", of.length>>10), f})
		out.find("Windows of %d bytes, values right: %s.", of.length, listed(right))
	}
	out.Tables = append([]report.Table{t}, out.Tables...)
	return nil
}
