package reproduce

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/model"
)

var fastTable2 = Row{
	Name:   "fast-table2",
	Doc:    "training steps a second of the Long Range Arena's models, and their ratios to softmax",
	Source: "Gerami et al. 2024, FAST, arXiv 2402.07901, table 2 (RTX A5000)",
	Claim:  "Fastmax2 makes 1.8, 3.4, 4.1, 1.0 and 1.1 times the steps of softmax, Fastmax1 7.4, 14.8, 14.5, 4.3 and 4.0 times",
	pieces: table2Pieces, outcome: table2Outcome,
}

// table2Published are steps a second, in the order of lraTasks.
var table2Published = map[string][]float64{
	softmax.Label:  {6.4, 1.8, 1.7, 3.0, 6.1},
	fastmax1.Label: {47.4, 26.7, 24.7, 12.8, 24.4},
	fastmax2.Label: {11.6, 6.1, 6.9, 3.0, 6.8},
}

// publishedNames are what the paper calls the function that a label is beside.
var publishedNames = map[string]string{fastmax1.Label: "Fastmax1" + otherMark, fastmax2.Label: "Fastmax2" + otherMark}

// publishedLabel returns the label of the published row of a label.
func publishedLabel(label string) string {
	if name, other := publishedNames[label]; other {
		return name + ", published"
	}
	return label + ", published"
}

// matrixCurve is softmax with its matrix written down.
const matrixCurve = "softmax, matrix written down"

type table2Config struct {
	Task    string        `json:"task"`
	N       int           `json:"n"`
	Pass    int           `json:"pass"`   // samples that go through the model at a time
	Passes  int           `json:"passes"` // of a step, of the published batch
	Methods []method      `json:"methods"`
	Model   model.Config  `json:"model"` // of softmax
	Each    time.Duration `json:"each"`
}

func table2Configs(o *Options) (list []table2Config) {
	for i := range lraTasks {
		t := &lraTasks[i]
		// Powers of two, as the batches are, so that passes make a whole one.
		small := max(1, 4096/(t.N*t.Parts))
		pass := pick(o.Budget, small, min(4*small, t.Batch), t.Batch)
		list = append(list, table2Config{
			Task: t.Name, N: t.N, Pass: pass, Passes: t.Batch / pass,
			Methods: []method{softmax, fastmax1, fastmax2, linear}, Model: t.config(&softmax),
			Each: pick(o.Budget, 8*time.Second, 30*time.Second, 5*time.Minute),
		})
	}
	return list
}

// table2Features holds the features of each mechanism as computed here; 0: all pairs.
var table2Features = map[string]int{
	fastmax1.Label: lraWidth/lraHeads + 1, fastmax2.Label: binomial(lraWidth/lraHeads+2, 2), linear.Label: lraWidth / lraHeads,
}

// flops counts the operations of a step.
func (c *table2Config) flops(task *lraTask, label string) float64 {
	return 3 * float64(task.Batch*task.Parts*c.N) * lraFLOPs(c.N, table2Features[label])
}

func table2Pieces(o *Options) (list []Piece, err error) {
	for i, c := range table2Configs(o) {
		task := &lraTasks[i]
		p := Piece{Name: c.Task, Config: c, run: func(w *Work) (any, error) { return c.run(w, task) }}
		// Three steps of each are timed, or the steps that fit in its time. A step that
		// writes the matrix takes about twice as long.
		add := func(label string, times float64) {
			if flops := 3 * times * c.flops(task, label); flops/1e11 > c.Each.Seconds() {
				p.FLOPs += flops
			} else {
				p.Time += raceTime(1, c.Each)
			}
		}
		for _, m := range c.Methods {
			add(m.Label, 1)
		}
		add(softmax.Label, 2)
		list = append(list, p)
	}
	return list, nil
}

func (c *table2Config) run(w *Work, task *lraTask) ([]timing, error) {
	var list []timed
	add := func(curve string, m *method, matrix bool) {
		config := task.config(m)
		sequences := c.Pass * task.Parts
		need := 4 * float64(sequences*c.N) * (lraLayers*(16*lraWidth) + 6*lraWidth)
		if matrix {
			need += 4 * float64(sequences*lraHeads*c.N) * float64(c.N) * (lraLayers + 1)
		}
		need *= float64(par.Threads()) // passes are side by side
		line := bench.Line{Mechanism: m.Name, Order: m.Order, Direction: "update", N: c.N, M: c.N, D: lraWidth / lraHeads, Dv: lraWidth / lraHeads, Heads: lraHeads}
		list = append(list, timed{curve, c.N, bench.NewCase(line, c.flops(task, m.Label), need, func() (func() error, error) {
			u, err := bench.NewUpdate(config, sequences, c.Passes)
			if err != nil {
				return nil, err
			}
			if matrix {
				writeMatrices(u)
			}
			return u.Run, nil
		})})
	}
	for i := range c.Methods {
		add(c.Methods[i].Label, &c.Methods[i], false)
	}
	add(matrixCurve, &softmax, true)
	return w.race(list, c.Each, 10*time.Minute)
}

// passesOf lists the passes of the tasks.
func passesOf(configs []table2Config) string {
	var list []string
	for _, c := range configs {
		list = append(list, fmt.Sprint(c.Passes))
	}
	return strings.Join(list, ", ")
}

func table2Outcome(o *Options, r *Results) (*Outcome, error) {
	out := new(Outcome)
	configs := table2Configs(o)
	steps := report.Table{
		Title: "Training steps a second", Head: []string{"model"},
		Note: "2 layers of width 64, 2 heads of 32, MLP 128 with GELU by its tanh, the mean of all outputs, batches of 32, 32, 16 pairs, 256 and 128, which are those that the published speeds agree with. " +
			"A step is the whole batch: forward and backward in passes (" + passesOf(configs) + " of them), one on each thread where there are enough, then the norm of the gradients and one step of the optimizer.",
	}
	ratios := report.Table{
		Title: "Steps of softmax's", Head: []string{"model"},
		Note: "Counted: operations of a whole step, softmax over the model's, p = 2 with D² + D + 1 features as published and with the packed ones that are computed here. " +
			"Softmax with its matrix written down is what the published baseline is; farfield's own is tiled. " + otherFastmax,
	}
	const d = lraWidth / lraHeads
	counted := map[string][]int{
		fastmax1.Label: {table2Features[fastmax1.Label]}, linear.Label: {table2Features[linear.Label]},
		fastmax2.Label: {1 + d + d*d, table2Features[fastmax2.Label]},
	}
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
			line(&steps, publishedLabel(name), published(name))
		}
		line(&steps, name+", here", func(i int) float64 { return speed(name, i) })
	}
	for _, name := range []string{fastmax1.Label, fastmax2.Label, linear.Label} {
		if table2Published[name] != nil {
			line(&ratios, publishedLabel(name), func(i int) float64 { return table2Published[name][i] / table2Published[softmax.Label][i] })
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
				out.find("%s over %s is at least %s times the published ratio (%s) of %s.", name, base.words, digits(least), configs[where].Task, publishedNames[name])
			}
		}
	}
	return out, nil
}
