package reproduce

import (
	"fmt"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/tensor"
	"github.com/farfield-ml/farfield/train"
)

var fastFig4 = Row{
	Name:   "fast-fig4",
	Doc:    "attention maps of trained nets, softmax beside Fastmax, on the same digits and the same text",
	Source: "Gerami et al. 2024, FAST, arXiv 2402.07901, figure 4 and section 3.2",
	Claim:  "pictures of randomly selected heads: distinct columns on MNIST, a strong diagonal on Tiny Shakespeare, Fastmax less localised than softmax",
	Seeds:  true, Tunes: true,
	pieces: fig4Lessons.pieces, outcome: fig4Lessons.outcome(fig4Findings),
}

// mapMethods are those whose maps are compared: p = 2 with scores over √D, with which
// it learns best, and as published.
var mapMethods = []method{softmax, fastmax1, fastmax2, published2}

const (
	digitsName       = "digits"
	digitsUpdates    = 422 // of an epoch
	digitsBatch      = 128 // FAST's mnist_test.py
	shakespeareName  = "text"
	shakespeareData  = "tinyshakespeare"
	shakespeareVocab = 65 // its characters
)

// digitsLesson is the net of FAST's program for MNIST, mnist_test.py: patches of 4×4
// and a class token, 6 blocks of width 96 with 4 heads.
func digitsLesson(o *Options, steps int) (*lesson, error) {
	l, err := presetLesson(digitsName, "mnist", steps, nil)
	if err != nil {
		return nil, err
	}
	c := &l.Config
	m := &c.Model
	m.Layers, m.Width, m.Heads, m.Hidden, m.Pool, m.Positions = 6, 96, 4, 192, model.PoolCLS, model.Sinusoidal
	c.Batch, c.Standardise = digitsBatch, false
	c.Schedule, c.Rate, c.MinRate, c.WarmUp, c.Decay = train.ConstantSchedule, 5e-4, 5e-4, 0, 1e-3
	c.EvalEvery = max(1, steps/4)
	c.FinalSamples = pick(o.Budget, 2000, 0, 0)
	l.Seeds, l.Length, l.Baseline = pick(o.Budget, 1, 1, 3), 49, true
	return l, nil
}

// shakespeareLesson is nanoGPT's configuration for the CPU on Tiny Shakespeare, or in full
// the net of FAST's own example: 8 blocks of width 256 with 8 heads.
func shakespeareLesson(o *Options, steps int) (*lesson, error) {
	l, err := presetLesson(shakespeareName, "shakespeare-cpu", steps, map[string]string{"data": shakespeareData})
	if err != nil {
		return nil, err
	}
	c := &l.Config
	c.EvalEvery = max(1, steps/4)
	if o.Budget == Full {
		m := &c.Model
		m.Layers, m.Width, m.Heads, m.Context, m.Dropout, m.Tied = 8, 256, 8, 200, 0.2, false
		c.Batch, c.Schedule, c.Rate, c.MinRate, c.WarmUp, c.Decay = 64, train.ConstantSchedule, 1e-4, 1e-4, 0, 1e-3
	}
	c.EvalSamples = 100
	l.Seeds, l.Length, l.Vocab, l.Baseline = pick(o.Budget, 1, 1, 3), c.Model.Context, shakespeareVocab, true
	return l, nil
}

var fig4Lessons = lessons(func(o *Options) ([]*lesson, error) {
	pictures, err := digitsLesson(o, pick(o.Budget, 150, 3*digitsUpdates, 10*digitsUpdates))
	if err != nil {
		return nil, err
	}
	text, err := shakespeareLesson(o, pick(o.Budget, 600, 2000, 5000))
	if err != nil {
		return nil, err
	}
	for _, l := range []*lesson{pictures, text} {
		l.Methods, l.look = mapMethods, fig4Look
	}
	return []*lesson{pictures, text}, nil
})

// shownTokens counts the tokens of the text whose maps are drawn, few enough for labels;
// shownDigits counts the digits.
const (
	shownTokens = 32
	shownDigits = 2
)

// shownSample is what a net makes of a sample.
type shownSample struct {
	Name    string    `json:"name"`
	Picture []byte    `json:"picture,omitempty"` // a square of grey levels
	Side    int       `json:"side,omitempty"`
	Labels  []string  `json:"labels,omitempty"` // of the positions
	Heads   []headMap `json:"heads"`
}

// fig4Look lets the model read the first samples of the judged split.
func fig4Look(t *train.Trainer) (any, error) {
	raw, err := t.Config().OpenTask()
	if err != nil {
		return nil, err
	}
	src := t.Source()
	spec := src.Spec()
	var list []shownSample
	add := func(s task.Sample, x shownSample) error {
		at := spreadHeads(t.Model().Config())
		list = append(list, x)
		heads := &list[len(list)-1].Heads
		return eachHead(t.Model(), train.PackBatch(spec, s), func(p headPlace, a tensor.Mat) {
			if slices.Contains(at, p) {
				*heads = append(*heads, newHeadMap(p, a))
			}
		})
	}
	var s task.Sample
	if text, ok := raw.(*task.Text); ok {
		if err := src.Sample(&s, spec.JudgedSplit(), 0); err != nil {
			return nil, err
		}
		n := min(shownTokens, len(s.Tokens))
		s.Tokens, s.Labels = s.Tokens[:n], s.Labels[:n]
		x := shownSample{Name: "the first characters"}
		for _, token := range s.Tokens {
			letter, err := text.Vocab.Decode(nil, token)
			if err != nil {
				return nil, err
			}
			x.Labels = append(x.Labels, strings.NewReplacer(" ", "·", "\n", "¶").Replace(string(letter)))
		}
		return list, add(s, x)
	}
	pictures, ok := raw.(task.PictureSource)
	if !ok {
		return nil, fmt.Errorf("task %s has no pictures", spec.Name)
	}
	for i := range shownDigits {
		if err := src.Sample(&s, spec.JudgedSplit(), i); err != nil {
			return nil, err
		}
		p, err := pictures.Picture(spec.JudgedSplit(), i)
		if err != nil {
			return nil, err
		}
		if err := add(s, shownSample{Name: fmt.Sprintf("a %d", s.Class), Picture: p.Pixels, Side: p.Width}); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// fig4Findings draws the maps of each sample, a line of them for each mechanism.
func fig4Findings(out *Outcome, list []scored) error {
	t := report.Table{Title: "Where the weights of the drawn maps lie", Head: append([]string{"net", "mechanism"}, localityHead...), Note: localityNote}
	for _, s := range list {
		var first []shownSample
		all := map[string][]shownSample{}
		for _, x := range s.Results {
			look, err := convert[[]shownSample](x.Runs[0].Look)
			if err != nil {
				return err
			}
			if len(look) == 0 {
				continue
			}
			all[x.Label] = look
			if first == nil {
				first = look
			}
			var of []locality
			for _, sample := range look {
				for i := range sample.Heads {
					of = append(of, sample.Heads[i].locality())
				}
			}
			addRow(&t, append([]string{s.Name, x.Label}, meanLocality(of).cells()...)...)
		}
		for i, sample := range first {
			maps := &report.Maps{Title: fmt.Sprintf("%s, %s", s.Name, sample.Name), Columns: len(sample.Heads)}
			if sample.Side > 0 {
				maps.Columns++
			}
			for _, x := range s.Results {
				look := all[x.Label]
				if i >= len(look) {
					continue
				}
				if sample.Side > 0 {
					maps.Heats = append(maps.Heats, report.NewGreyHeat(x.Label, sample.Side, sample.Side, sample.Picture))
				}
				for j := range look[i].Heads {
					m := &look[i].Heads[j]
					title := fmt.Sprintf("%s, layer %d head %d", x.Label, m.Layer, m.Head)
					if sample.Labels != nil {
						maps.Heats = append(maps.Heats, m.textHeat(title, sample.Labels))
					} else {
						maps.Heats = append(maps.Heats, m.heat(title))
					}
				}
			}
			caption := "Rows are queries, columns keys; each map has colours of its own. The same heads of every mechanism, from the first of the first layer to the last of the last."
			if sample.Labels != nil {
				caption += " Colours end at the largest weight of the queries behind the first quarter, which see few keys."
			}
			out.Sections = append(out.Sections, PageSection{fmt.Sprintf("%s-%d", s.Name, i+1), report.Section{
				Title: maps.Title, Maps: maps, Caption: caption,
			}})
		}
		if one, two := s.find(softmax.Label, t), s.find(fastmax2.Label, t); one != nil && two != nil {
			out.find("%s: the drawn heads of softmax have an entropy of %s and %s of their weight on the diagonal, %s in a column; the heads of %s have %s, %s and %s.",
				s.Name, one[2], one[4], one[5], fastmax2.Label, two[2], two[4], two[5])
		}
	}
	if len(t.Rows) > 0 {
		out.Tables = append(out.Tables, t)
	}
	return nil
}

// find returns the row of a mechanism in a table whose rows begin with the lesson.
func (s *scored) find(label string, t report.Table) []string {
	for _, r := range t.Rows {
		if r[0] == s.Name && r[1] == label {
			return r
		}
	}
	return nil
}

// locality tells where the weights lie.
func (m *headMap) locality() locality {
	a := tensor.NewMat(m.Rows, m.Cols)
	for i, x := range m.Weights {
		a.Data[i] = float32(x)
	}
	return localityOf(a)
}
