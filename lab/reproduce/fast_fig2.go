package reproduce

import (
	"fmt"
	"strings"

	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/train"
)

var fastFig2 = Row{
	Name:   "fast-fig2",
	Doc:    "dropout where there is no attention matrix: of quadratic terms, of channels (standard), of tokens (1d), and none",
	Source: "Gerami et al. 2024, FAST, arXiv 2402.07901, figure 2 and section 2.4",
	Claim:  "quadratic is best, and small rates of it already generalise better than none; curves without numbers, of a task that is not named",
	Seeds:  true, Tunes: true,
	pieces: fig2Pieces, outcome: fig2Lessons.outcome(fig2Findings),
}

// fig2Forms are the forms of the figure by the names that it has for them, fig2Rates
// the shares that are left out.
var (
	fig2Forms = []string{"quadratic", "1d", "standard"}
	fig2Rates = []float64{0.05, 0.2}
)

// fig2Learn is how many images there are to learn from where nets are small: so few
// that they are learned by heart, and generalising is what is left to gain.
const fig2Learn = 500

// withDropout is Fastmax with a form of dropout.
func withDropout(form string, rate float64) method {
	m := fastmax2
	if m.Label = "none"; form != "" {
		m.Label = fmt.Sprintf("%s %g", form, rate)
	}
	m.change = func(c *train.Config) {
		c.Model.AttentionDropoutKind, c.Model.AttentionDropout = model.DropoutKind(form), rate
	}
	return m
}

// fig2More are images that the hour learns from besides, for so long that nets without dropout
// know them by heart.
const fig2More, fig2MoreUpdates = 2000, 3000

var fig2Lessons = lessons(func(o *Options) (list []*lesson, _ error) {
	add := func(l *lesson, err error) error {
		if err != nil {
			return err
		}
		l.Config.EvalEvery = max(1, l.Config.Steps/4)
		l.Seeds, l.Length, l.Baseline = pick(o.Budget, 2, 5, 5), 49, true
		l.Methods = []method{withDropout("", 0)}
		for _, form := range fig2Forms {
			for _, rate := range fig2Rates {
				l.Methods = append(l.Methods, withDropout(form, rate))
			}
		}
		list = append(list, l)
		return nil
	}
	few := func(name string, images, updates int) (*lesson, error) {
		l, err := presetLesson(name, "mnist", updates, map[string]string{"learn": fmt.Sprint(images)})
		if err == nil {
			l.Config.Batch, l.Config.Model.Heads = 32, 8 // narrow heads have fewer products to leave out
		}
		return l, err
	}
	if o.Budget == Full {
		err := add(digitsLesson(o, 10*digitsUpdates))
		return list, err
	}
	err := add(few(digitsName, fig2Learn, pick(o.Budget, 300, 1000, 0)))
	if err == nil && o.Budget == Hour {
		err = add(few(fmt.Sprintf("%s-%d", digitsName, fig2More), fig2More, fig2MoreUpdates))
	}
	return list, err
})

// fig2Pieces counts the random numbers of quadratic dropout, too, which take longer
// than the products that they are for: one for each product of two channels of each
// query and key, in passes forward and backward.
func fig2Pieces(o *Options) ([]Piece, error) {
	list, err := fig2Lessons.pieces(o)
	const drawn = 10 * 4 // plain operations of a number, and how often it is drawn
	for i, p := range list {
		if c, ok := p.Config.(train.Config); ok && c.Model.AttentionDropoutKind == "quadratic" {
			width := c.Model.Width / c.Model.Heads
			numbers := 2 * c.Steps * c.Batch * 49 * c.Model.Layers * c.Model.Heads * width * width
			list[i].FLOPs += plainLoopCost * drawn * float64(numbers)
		}
	}
	return list, err
}

// fig2Findings compares every form with none.
func fig2Findings(out *Outcome, list []scored) error {
	for i := range list {
		out.compareDropout(&list[i])
	}
	return nil
}

// compareDropout compares every form with none on the images of a lesson.
func (out *Outcome) compareDropout(s *scored) {
	mark := strings.TrimPrefix(s.Name, digitsName)
	t := report.Table{
		Title: "Accuracy in percent by form and rate of dropout", Head: []string{"dropout", "test", "± of seeds", "more than none", "training loss at the end"},
		Note: "All of fastmax 2 with scores over √D. Training loss: mean of the last twentieth of the updates, with dropout on.",
	}
	if learn := s.Config.TaskSet["learn"]; learn != "" {
		t.Note += fmt.Sprintf(" %s images to learn from.", learn)
	}
	var base *result
	f := report.Figure{Title: "Test accuracy by rate of dropout", XLabel: "share that is left out", YLabel: "accuracy", XLinear: true, YLinear: true}
	lines := map[string]*report.Series{}
	for i := range s.Results {
		x := &s.Results[i]
		more := none
		if x.Label == "none" {
			base = x
		} else if base != nil {
			more = fmt.Sprintf("%+.2f", 100*(x.Value-base.Value))
		}
		var ends []float64
		for _, run := range x.Runs {
			var loss []float64
			for _, p := range run.Steps {
				loss = append(loss, p.Loss)
			}
			if n := len(loss); n > 0 {
				end, _ := mean(loss[n-max(1, n/smoothed):])
				ends = append(ends, end)
			}
		}
		end, _ := mean(ends)
		spread := none
		if len(x.Runs) > 1 {
			spread = fmt.Sprintf("%.2f", 100*x.Spread)
		}
		addRow(&t, x.Label, fmt.Sprintf("%.2f", 100*x.Value), spread, more, digits(end))
		for _, form := range fig2Forms {
			for _, rate := range fig2Rates {
				if x.Label == withDropout(form, rate).Label {
					if lines[form] == nil {
						lines[form] = &report.Series{Name: form}
						if base != nil {
							addPoint(lines[form], 0, base)
						}
					}
					addPoint(lines[form], rate, x)
				}
			}
		}
	}
	out.Tables = append(out.Tables, t)
	for _, form := range fig2Forms {
		if lines[form] != nil {
			f.Series = append(f.Series, *lines[form])
		}
	}
	if len(f.Series) > 0 {
		out.Figures = append(out.Figures, Drawing{"accuracy-by-rate" + mark, f})
	}
	if base == nil || len(base.Runs) < 2 {
		return
	}
	var better []string
	for _, x := range s.Results {
		if x.Label != base.Label && x.Value-base.Value > x.Spread+base.Spread {
			better = append(better, x.Label)
		}
	}
	out.find("%s: better than no dropout by more than the spread of the seeds: %s.", s.Name, listed(better))
}

// addPoint adds a score with the spread of its seeds.
func addPoint(s *report.Series, at float64, x *result) {
	s.X, s.Y = append(s.X, at), append(s.Y, x.Value)
	s.ErrorLow, s.ErrorHigh = append(s.ErrorLow, x.Value-x.Spread), append(s.ErrorHigh, x.Value+x.Spread)
}
