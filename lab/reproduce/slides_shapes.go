package reproduce

import (
	"context"
	"fmt"

	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/tensor"
	"github.com/farfield-ml/farfield/train"
)

var slidesShapes = Row{
	Name:   "slides-shapes",
	Doc:    "heights of two triangles and two rectangles averaged in pairs, by convolutions with and without attention",
	Source: "Fleuret, slides of fast attention, and his script attentiontoy1d.py",
	Claim:  "62,337 parameters without attention fail, 54,081 with attention solve it; curves of the squared error summed over the 250 batches of an epoch",
	Seeds:  true, Tunes: true,
	pieces: shapesLessons.pieces, outcome: shapesLessons.outcome(shapesFindings),
}

const (
	shapesLength  = 100
	shapesBatches = 250 // of an epoch: errors are plotted as sums over them
	// shapesLocal is the least sum that a rule reaches which sees its own shape
	// alone, from a simulation of the task.
	shapesLocal = 682
)

// shapesPublished are the published numbers of parameters.
var shapesPublished = map[string]int{convolutions.Label: 62337, unscaled.Label: 54081}

var (
	convolutions = method{Label: "convolutions alone"}
	// unscaled is softmax of scores as they are, as in the script.
	unscaled = method{Label: "softmax, scores as they are", Name: "softmax", Set: map[string]string{"scale": "1"}}
)

var shapesLessons = lessons(func(o *Options) ([]*lesson, error) {
	epochs := pick(o.Budget, 8, 40, 250)
	l, err := presetLesson("shapes", "shapes", shapesBatches*epochs, nil)
	if err != nil {
		return nil, err
	}
	l.Methods, l.Seeds = []method{convolutions, unscaled, fastmax2, linear}, pick(o.Budget, 1, 1, 3)
	l.Length, l.Baseline, l.look = shapesLength, true, shapesLook
	return []*lesson{l}, nil
})

// shapesSignal is what a trained net makes of a signal.
type shapesSignal struct {
	Input     []float64 `json:"input"`
	Target    []float64 `json:"target"`
	Predicted []float64 `json:"predicted"`
	Attention *headMap  `json:"attention,omitempty"` // nil: the net has none
}

func shapesLook(t *train.Trainer) (any, error) {
	src := t.Source()
	var s task.Sample
	spec := src.Spec()
	if err := src.Sample(&s, spec.JudgedSplit(), 0); err != nil {
		return nil, err
	}
	n := len(s.Targets)
	y := make([]float32, n)
	if err := t.Model().Logits(context.Background(), &model.Batch{B: 1, N: n, Values: s.Values}, y); err != nil {
		return nil, err
	}
	x := new(shapesSignal)
	for i := range n {
		x.Input, x.Target, x.Predicted = append(x.Input, float64(s.Values[i])), append(x.Target, float64(s.Targets[i])), append(x.Predicted, float64(y[i]))
	}
	err := eachHead(t.Model(), &model.Batch{B: 1, N: n, Values: s.Values}, func(at headPlace, a tensor.Mat) {
		m := newHeadMap(at, a)
		x.Attention = &m
	})
	return x, err
}

func shapesFindings(out *Outcome, list []scored) error {
	s := list[0]
	t := report.Table{
		Title: "Squared error summed over the batches of an epoch", Head: []string{"net", "parameters published", "here", "sum", "of the best local rule"},
		Note: fmt.Sprintf("%d times the mean squared error of the test signals; the best rule that sees its own shape alone has %d.", shapesBatches, shapesLocal),
	}
	for _, x := range s.Results {
		published := none
		if n, found := shapesPublished[x.Label]; found {
			published = fmt.Sprint(n)
			if n != x.Runs[0].Params {
				out.find("%s has %d parameters, not the published %d.", x.Label, x.Runs[0].Params, n)
			}
		}
		sum := shapesBatches * x.Value
		addRow(&t, x.Label, published, fmt.Sprint(x.Runs[0].Params), digits(sum), percent(sum/shapesLocal))
	}
	out.Tables = append(out.Tables, t)
	maps := &report.Maps{Title: "Attention on the signal that is drawn above"}
	for _, x := range s.Results {
		look, err := convert[shapesSignal](x.Runs[0].Look)
		if err != nil || len(look.Target) == 0 {
			return err
		}
		f := report.Figure{Title: x.Label, XLabel: "position", YLabel: "height", XLinear: true, YLinear: true}
		place := make([]float64, len(look.Target))
		for i := range place {
			place[i] = float64(i)
		}
		f.Series = []report.Series{{Name: "target", X: place, Y: look.Target}, {Name: "predicted", X: place, Y: look.Predicted}}
		out.Figures = append(out.Figures, Drawing{"signal-" + x.file(), f})
		if look.Attention != nil {
			maps.Heats = append(maps.Heats, look.Attention.heat(x.Label))
		}
	}
	if len(maps.Heats) > 0 {
		out.Sections = append(out.Sections, PageSection{"attention", report.Section{Title: maps.Title, Maps: maps, Caption: "Rows are positions that ask, columns those that are seen."}})
	}
	return nil
}
