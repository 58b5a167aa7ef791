package reproduce

import (
	"fmt"
	"maps"
	"math"
	"strconv"

	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/tensor"
	"github.com/farfield-ml/farfield/train"
)

var fastLocality = Row{
	Name:   "fast-locality",
	Doc:    "entropy, mean distance, diagonal and column mass of trained heads; loss against the temperature of the scores",
	Source: "Gerami et al. 2024, FAST, arXiv 2402.07901, section 3.2",
	Claim:  "columns on MNIST, a diagonal on Tiny Shakespeare; Fastmax is less localised than softmax, to an effect that is left open; no numbers",
	Seeds:  true, Tunes: true,
	pieces: localityLessons.pieces, outcome: localityLessons.outcome(localityFindings),
}

// temperatures divide the scores q·k/√D. Rows of softmax can grow to compensate;
// normalised rows of Fastmax cannot.
var temperatures = []float64{0.25, 1, 4}

// withTemperature returns the mechanism with a temperature, for heads of width d; for 1
// the mechanism itself.
func (m *method) withTemperature(temperature float64, d int) method {
	if temperature == 1 {
		return *m
	}
	x := *m
	x.Label = fmt.Sprintf("%s, temperature %g", m.Label, temperature)
	x.Set = map[string]string{}
	maps.Copy(x.Set, m.Set)
	x.Set["scale"] = strconv.FormatFloat(1/(temperature*math.Sqrt(float64(d))), 'g', 6, 64)
	return x
}

// heated are the mechanisms that are taught at several temperatures.
var heated = []method{softmax, fastmax2}

var localityLessons = lessons(func(o *Options) ([]*lesson, error) {
	pictures, err := digitsLesson(o, pick(o.Budget, 120, digitsUpdates, 10*digitsUpdates))
	if err != nil {
		return nil, err
	}
	pictures.Methods, pictures.look = mapMethods, localityLook
	text, err := shakespeareLesson(o, pick(o.Budget, 500, 2000, 5000))
	if err != nil {
		return nil, err
	}
	text.Methods, text.look = append([]method(nil), mapMethods...), localityLook
	m := &text.Config.Model
	for i := range heated {
		for _, temperature := range temperatures {
			if temperature != 1 {
				text.Methods = append(text.Methods, single(heated[i].withTemperature(temperature, m.Width/m.Heads)))
			}
		}
	}
	return []*lesson{pictures, text}, nil
})

// localitySamples are how many samples the heads are looked at on.
const localitySamples = 16

// located is where the weights of each head lie, on average over samples.
type located struct {
	Layer   []locality `json:"layer"`   // means over the heads of a layer
	All     locality   `json:"all"`     // over all
	Uniform locality   `json:"uniform"` // of equal weights
}

func localityLook(t *train.Trainer) (any, error) {
	src := t.Source()
	spec := src.Spec()
	c := t.Model().Config()
	layers := make([][]locality, c.Layers)
	var equal []locality
	n := spec.Count[spec.JudgedSplit()]
	if n == task.Endless || n > localitySamples {
		n = localitySamples
	}
	var s task.Sample
	for i := range n {
		if err := src.Sample(&s, spec.JudgedSplit(), i); err != nil {
			return nil, err
		}
		tokens := 0
		err := eachHead(t.Model(), train.PackBatch(spec, s), func(p headPlace, a tensor.Mat) {
			layers[p.Layer] = append(layers[p.Layer], localityOf(a))
			tokens = a.Rows
		})
		if err != nil {
			return nil, err
		}
		equal = append(equal, uniform(tokens, c.IsCausal()))
	}
	x := located{Uniform: meanLocality(equal)}
	for _, list := range layers {
		x.Layer = append(x.Layer, meanLocality(list))
	}
	x.All = meanLocality(x.Layer)
	return x, nil
}

func localityFindings(out *Outcome, list []scored) error {
	all := report.Table{Title: "Where the weights of trained heads lie", Head: append([]string{"net", "mechanism"}, localityHead...), Note: localityNote + " Equal weights are the trivial baseline."}
	layers := report.Table{Title: "By layer", Head: append([]string{"net", "mechanism", "layer"}, localityHead...)}
	for _, s := range list {
		for i, x := range s.Results {
			var of, equal []locality
			var by [][]locality
			for _, run := range x.Runs {
				look, err := convert[located](run.Look)
				if err != nil {
					return err
				}
				if by == nil {
					by = make([][]locality, len(look.Layer))
				}
				of, equal = append(of, look.All), append(equal, look.Uniform)
				for k, l := range look.Layer {
					by[k] = append(by[k], l)
				}
			}
			if i == 0 {
				addRow(&all, append([]string{s.Name, "equal weights"}, meanLocality(equal).cells()...)...)
			}
			addRow(&all, append([]string{s.Name, x.Label}, meanLocality(of).cells()...)...)
			for k := range by {
				addRow(&layers, append([]string{s.Name, x.Label, fmt.Sprint(k)}, meanLocality(by[k]).cells()...)...)
			}
		}
		if one, two := s.find(softmax.Label, all), s.find(fastmax2.Label, all); one != nil && two != nil {
			out.find("%s: entropy %s of softmax and %s of %s; distance %s and %s; diagonal %s and %s; column %s and %s.",
				s.Name, one[2], two[2], fastmax2.Label, one[3], two[3], one[4], two[4], one[5], two[5])
		}
		out.temperature(&s)
	}
	out.Tables = append(out.Tables, all, layers)
	return nil
}

// temperature draws the score of a lesson over the temperature of its mechanisms, if
// it has several.
func (out *Outcome) temperature(s *scored) {
	m := &s.Config.Model
	metric := string(s.Results[0].Runs[0].Score.Metric)
	t := report.Table{
		Title: s.Name + ": " + metric + " against temperature, each trained at its own", Head: []string{"mechanism"},
		Note: fmt.Sprintf("Scores q·k/(τ√D), D = %d. Published, Fastmax has no factor, which is τ = %s here.", m.Width/m.Heads, digits(1/math.Sqrt(float64(m.Width/m.Heads)))),
	}
	f := report.Figure{Title: t.Title, XLabel: "temperature τ", YLabel: metric, YLinear: true}
	for _, temperature := range temperatures {
		t.Head = append(t.Head, fmt.Sprintf("τ %g", temperature))
	}
	for i := range heated {
		line := report.Series{Name: heated[i].Label}
		cells := []string{heated[i].Label}
		for _, temperature := range temperatures {
			want, cell := heated[i].withTemperature(temperature, m.Width/m.Heads), none
			for _, x := range s.Results {
				if x.Label == want.Label {
					cell = digits(x.Value)
					line.X, line.Y = append(line.X, temperature), append(line.Y, x.Value)
				}
			}
			cells = append(cells, cell)
		}
		if len(line.X) > 1 {
			low, high := line.Y[0], line.Y[0]
			for _, y := range line.Y {
				low, high = min(low, y), max(high, y)
			}
			addRow(&t, cells...)
			f.Series = append(f.Series, line)
			out.find("%s: %s by %s is %s to %s over temperatures %g to %g.", s.Name, metric, heated[i].Label, digits(low), digits(high), line.X[0], line.X[len(line.X)-1])
		}
	}
	if len(f.Series) > 0 {
		out.Tables = append(out.Tables, t)
		out.Figures = append(out.Figures, Drawing{s.Name + "-temperature", f})
	}
}
