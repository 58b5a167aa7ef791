package reproduce

import (
	"fmt"
	"github.com/farfield-ml/farfield/report"
	"math"
	"time"

	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/model"
)

var fastTable2 = Row{
	Name:   "fast-table2",
	Doc:    "training steps a second of the Long Range Arena's models, and their ratios to softmax",
	Source: "Gerami et al. 2024, FAST, arXiv 2402.07901, table 2 (RTX A5000)",
	Claim:  "Fastmax2 makes 1.8, 3.4, 4.1, 1.0 and 1.1 times the steps of softmax, Fastmax1 7.4, 14.8, 14.5, 4.3 and 4.0 times",
	Code:   append([]string{"internal/bench"}, modelCode...),
	pieces: table2Pieces, outcome: table2Outcome,
}

// table2Published are steps a second, in the order of lraTasks.
var table2Published = map[string][]float64{
	softmax.Label:  {6.4, 1.8, 1.7, 3.0, 6.1},
	fastmax1.Label: {47.4, 26.7, 24.7, 12.8, 24.4},
	fastmax2.Label: {11.6, 6.1, 6.9, 3.0, 6.8},
}

// matrixCurve is softmax with its matrix written down.
const matrixCurve = "softmax, matrix written down"

type table2Config struct {
	Task    string        `json:"task"`
	N       int           `json:"n"`
	Batch   int           `json:"batch"` // that is timed
	Of      int           `json:"of"`    // that is published
	Methods []method      `json:"methods"`
	Model   model.Config  `json:"model"` // of softmax
	Each    time.Duration `json:"each"`
}

func table2Configs(o *Options) (list []table2Config) {
	for i := range lraTasks {
		t := &lraTasks[i]
		// A step of the published batch costs as many times more.
		small := max(1, 4000/(t.N*t.Parts))
		list = append(list, table2Config{
			Task: t.Name, N: t.N, Batch: pick(o.Budget, small, min(4*small, t.Batch), t.Batch), Of: t.Batch,
			Methods: []method{softmax, fastmax1, fastmax2, linear}, Model: t.config(&softmax),
			Each: pick(o.Budget, 3*time.Second, 20*time.Second, 5*time.Minute),
		})
	}
	return list
}

func table2Pieces(o *Options) (list []Piece, err error) {
	for i, c := range table2Configs(o) {
		task := &lraTasks[i]
		list = append(list, Piece{
			Name: c.Task, Config: c, Time: raceTime(len(c.Methods)+1, c.Each),
			run: func(w *Work) (any, error) { return c.run(w, task) },
		})
	}
	return list, nil
}

func (c *table2Config) run(w *Work, task *lraTask) ([]timing, error) {
	var list []timed
	add := func(curve string, m *method, features int, matrix bool) {
		config := task.config(m)
		sequences := c.Batch * task.Parts
		tokens := float64(sequences * c.N)
		need := 4 * tokens * (lraLayers*(16*lraWidth) + 6*lraWidth)
		if matrix {
			need += 4 * float64(sequences*lraHeads*c.N) * float64(c.N) * (lraLayers + 1)
		}
		line := bench.Line{Mechanism: m.Name, Order: m.Order, Direction: "update", N: c.N, M: c.N, D: lraWidth / lraHeads, Dv: lraWidth / lraHeads, Heads: lraHeads}
		list = append(list, timed{curve, c.N, bench.NewCase(line, 3*tokens*lraFLOPs(c.N, features), need, func() (func() error, error) {
			u, err := bench.NewUpdate(config, sequences)
			if err != nil {
				return nil, err
			}
			if matrix {
				writeMatrices(u)
			}
			return u.Run, nil
		})})
	}
	const d = lraWidth / lraHeads
	for i := range c.Methods {
		m := &c.Methods[i]
		add(m.Label, m, map[string]int{fastmax1.Label: d + 1, fastmax2.Label: binomial(d+2, 2), linear.Label: d}[m.Label], false)
	}
	add(matrixCurve, &softmax, 0, true)
	return w.race(list, c.Each, 10*time.Minute)
}

func table2Outcome(o *Options, r *Results) (*Outcome, error) {
	out := new(Outcome)
	configs := table2Configs(o)
	steps := report.Table{
		Title: "Training steps a second", Head: []string{"model"},
		Note: "2 layers of width 64, 2 heads of 32, MLP 128 with GELU by its tanh, the mean of all outputs, batches of 32, 32, 16 pairs, 256 and 128, which are those that the published speeds agree with. " +
			"Measured on fewer sequences and divided by as many times: a step's cost is that of its sequences.",
	}
	ratios := report.Table{
		Title: "Steps of softmax's", Head: []string{"model"},
		Note: "Counted: operations of a whole step, softmax over the model's, p = 2 with D² + D + 1 features as published and with the packed ones that are computed here. " +
			"Softmax with its matrix written down is what the published baseline is; farfield's own is tiled.",
	}
	const d = lraWidth / lraHeads
	counted := map[string][]int{fastmax1.Label: {d + 1}, fastmax2.Label: {1 + d + d*d, binomial(d+2, 2)}, linear.Label: {d}}
	all := map[string]map[int]timing{}
	for _, c := range configs {
		head := fmt.Sprintf("%s, N %d", c.Task, c.N)
		steps.Head, ratios.Head = append(steps.Head, head), append(ratios.Head, head)
	}
	any := false
	for i, c := range configs {
		list, _, err := get[[]timing](r, c.Task)
		if err != nil {
			return nil, err
		}
		for _, t := range list {
			if all[t.Curve] == nil {
				all[t.Curve] = map[int]timing{}
			}
			any = true
			// Of the published batch.
			t.Ms *= float64(c.Of) / float64(c.Batch)
			all[t.Curve][i] = t
		}
	}
	if !any {
		return out, nil
	}
	speed := func(name string, i int) float64 {
		if t := all[name][i]; t.Ms > 0 {
			return 1e3 / t.Ms
		}
		return math.NaN()
	}
	line := func(t *report.Table, name string, of func(i int) float64) {
		cells := []string{name}
		for i := range configs {
			cells = append(cells, digits(of(i)))
		}
		addRow(t, cells...)
	}
	published := func(name string) func(int) float64 {
		return func(i int) float64 { return table2Published[name][i] }
	}
	for _, name := range []string{softmax.Label, matrixCurve, fastmax1.Label, fastmax2.Label, linear.Label} {
		if table2Published[name] != nil {
			line(&steps, name+", published", published(name))
		}
		line(&steps, name+", here", func(i int) float64 { return speed(name, i) })
	}
	for _, name := range []string{fastmax1.Label, fastmax2.Label, linear.Label} {
		if table2Published[name] != nil {
			line(&ratios, name+", published", func(i int) float64 { return table2Published[name][i] / table2Published[softmax.Label][i] })
		}
		for _, f := range counted[name] {
			line(&ratios, fmt.Sprintf("%s, counted, %d features", name, f), func(i int) float64 { return lraFLOPs(configs[i].N, 0) / lraFLOPs(configs[i].N, f) })
		}
		line(&ratios, name+", here", func(i int) float64 { return speed(name, i) / speed(softmax.Label, i) })
		line(&ratios, name+", here, of softmax with its matrix", func(i int) float64 { return speed(name, i) / speed(matrixCurve, i) })
	}
	out.Tables = append(out.Tables, ratios, steps)
	for _, base := range []struct{ curve, words string }{{softmax.Label, "softmax"}, {matrixCurve, "softmax with its matrix written down, as the published one has it,"}} {
		for _, name := range []string{fastmax2.Label, fastmax1.Label} {
			least, where := math.Inf(1), 0
			for i := range configs {
				if x := speed(name, i) / speed(base.curve, i) / (table2Published[name][i] / table2Published[softmax.Label][i]); x < least {
					least, where = x, i
				}
			}
			if !math.IsInf(least, 1) {
				out.find("%s over %s is at least %s times the published ratio (%s).", name, base.words, digits(least), configs[where].Task)
			}
		}
	}
	return out, nil
}
