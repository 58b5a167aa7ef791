package reproduce

import (
	"fmt"
	"math"
	"time"

	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/train"
)

var fastFig5 = Row{
	Name:   "fast-fig5",
	Doc:    "accuracy over speed of training on tasks of the Long Range Arena, memory as area, for the mechanisms of the figure",
	Source: "Gerami et al. 2024, FAST, arXiv 2402.07901, figure 5 and the averages of tables 1 and 2 (RTX A5000)",
	Claim:  "average accuracy 57.37 % of softmax, 52.74 Informer, 58.07 Reformer, 50.55 linear, 57.69 Performer, 57.90 Fastmax2, 57.62 Fastmax1; 3.8, 6.9 and 27.2 steps a second of softmax, Fastmax2 and Fastmax1; memory is drawn, not printed",
	Lacks:  "Retrieval",
	Seeds:  true, Tunes: true,
	pieces: fig5Pieces, outcome: fig5Outcome,
}

var (
	informer  = method{Label: "informer", Name: "informer"}
	reformer  = method{Label: "reformer", Name: "reformer", Set: map[string]string{"rounds": "2"}}
	performer = method{Label: "performer", Name: "performer"}
)

// fig5Curve has averages that are published over the five tasks: accuracy in percent
// and training steps a second, 0 where none are printed.
type fig5Curve struct {
	method
	accuracy, speed float64
}

// fig5Published are the mechanisms of the figure that there are here, fig5Curves what is
// drawn.
var fig5Published = []fig5Curve{
	{softmax, 57.37, 3.8}, {informer, 52.74, 0}, {reformer, 58.07, 0}, {linear, 50.55, 0}, {performer, 57.69, 0}, {fastmax2, 57.90, 6.9}, {fastmax1, 57.62, 27.2},
}

// fig5Curves has, beside them, the functions that the hour trains under their own names.
var fig5Curves = append(fig5Published[:len(fig5Published):len(fig5Published)],
	fig5Curve{published2, 57.90, 6.9}, fig5Curve{published1, 57.62, 27.2}, fig5Curve{method: farThird2}, fig5Curve{method: farThird}, fig5Curve{method: taylorshift},
	fig5Curve{method: method{Label: matrixCurve}})

var fig5Lessons = lessons(func(o *Options) (list []*lesson, err error) {
	if o.Budget == Hour {
		return arenaHour()
	}
	type sized struct {
		name, preset  string
		length, vocab int
		steps         [3]int // of the budgets; 0: not within it
	}
	for _, x := range []sized{
		{"listops", "lra-listops", 2000, 18, [3]int{0, 0, 5000}},
		{"text", pick(o.Budget, "text", "text", "lra-text"), pick(o.Budget, 1000, 1000, 4000), 257, [3]int{0, 0, 20000}},
		{"image", pick(o.Budget, "image", "image", "lra-image"), 1024, 256, [3]int{100, 0, 35000}},
		{"pathfinder", "lra-pathfinder", 1024, 256, [3]int{0, 0, 62400}},
	} {
		if x.steps[o.Budget] == 0 {
			continue
		}
		l, err := presetLesson(x.name, x.preset, x.steps[o.Budget], nil)
		if err != nil {
			return nil, err
		}
		c := &l.Config
		c.EvalEvery, c.EvalSamples = max(1, c.Steps/4), pick(o.Budget, 50, 200, 1000)
		if o.Budget == Quick {
			c.Batch, c.FinalSamples = 16, 400
		}
		l.Length, l.Vocab, l.Baseline = x.length, x.vocab, true
		l.Seeds = pick(o.Budget, 1, 1, 3)
		for _, m := range fig5Published {
			l.Methods = append(l.Methods, m.method)
		}
		list = append(list, l)
	}
	return list, nil
})

// updateSpeed is what an update of samples of typical lengths takes.
type updateSpeed struct {
	Curve string  `json:"curve"`
	Shape shape   `json:"shape"`
	Ms    float64 `json:"ms"`
	Bytes float64 `json:"bytes"` // that updates keep and take, weights and moments aside
}

func speedPiece(l *lesson) string { return l.Name + "-speed" }

type speedConfig struct {
	Shapes  []shape       `json:"shapes"` // the last is the longest
	Each    time.Duration `json:"each"`
	Methods []method      `json:"methods"`
	Model   model.Config  `json:"model"` // but for what the mechanism and the task decide
}

// fig5Speed times the longest samples, and those that samples of the lesson grow from.
func fig5Speed(o *Options, l *lesson) speedConfig {
	shapes := sortedShapes(countShapes(l.grown(l.Config.Steps), l.Config.Steps))
	if l.Config.FirstContext == 0 {
		shapes = []shape{{pick(o.Budget, 4, 8, 32), l.Length}}
	}
	return speedConfig{shapes, pick(o.Budget, 3*time.Second, 15*time.Second, time.Minute) / time.Duration(len(shapes)), l.Methods, l.Config.Model}
}

// grown is the configuration of a training of the lesson with the length of its samples.
func (l *lesson) grown(steps int) *train.Config {
	c := l.Config
	c.Steps, c.Model.Context = steps, l.Length
	return &c
}

func fig5Pieces(o *Options) ([]Piece, error) { return speedPieces(fig5Lessons, o) }

// speedPieces are the trainings of lessons, and the times of their updates.
func speedPieces(of lessons, o *Options) ([]Piece, error) {
	list, err := of.pieces(o)
	if err != nil {
		return nil, err
	}
	all, err := of(o)
	if err != nil {
		return nil, err
	}
	for _, l := range all {
		c := fig5Speed(o, l)
		list = append(list, Piece{
			Name: speedPiece(l), Config: c, Time: raceTime((len(c.Methods)+1)*len(c.Shapes), c.Each),
			run: func(w *Work) (any, error) {
				l.Config.Folder = o.Data
				return l.speeds(w, c)
			},
		})
	}
	return list, nil
}

// speeds times updates of all mechanisms in turns.
func (l *lesson) speeds(w *Work, s speedConfig) ([]updateSpeed, error) {
	src, err := l.openTask(&l.Config)
	if err != nil {
		return nil, err
	}
	var list []timed
	var out []updateSpeed
	add := func(curve string, m *method, matrix bool, of shape) error {
		c, prepared, err := l.configFor(m, 1, 1).PrepareTask(src)
		if err != nil {
			return fmt.Errorf("%s: %w", curve, err)
		}
		c.Model.Context = of.Context
		line := bench.Line{Mechanism: m.Name, Order: m.Order, Direction: "update", N: of.Context, Heads: c.Model.Heads, D: c.Model.Width / c.Model.Heads}
		flops := c.Model.TrainFLOPs(float64(of.Batch * of.Context))
		need := 64 * float64(of.Batch*of.Context*c.Model.Layers*c.Model.Width)
		if matrix {
			need += 4 * float64(of.Batch*c.Model.Heads*of.Context) * float64(of.Context) * float64(c.Model.Layers+1)
		}
		k := len(out)
		out = append(out, updateSpeed{Curve: curve, Shape: of})
		list = append(list, timed{curve, of.Context, bench.NewCase(line, flops, need, func() (func() error, error) {
			u, err := newUpdate(c.Model, prepared, of)
			if err != nil {
				return nil, err
			}
			if matrix {
				u.Batch.Lens = nil // it computes what is padding, too
				writeMatrices(u)
			}
			bytes, err := u.MeasureMemory()
			out[k].Bytes = float64(bytes)
			return u.Run, err
		})})
		return nil
	}
	for _, of := range s.Shapes {
		for i := range l.Methods {
			if err := add(l.Methods[i].Label, &l.Methods[i], false, of); err != nil {
				return nil, err
			}
		}
	}
	if err := add(matrixCurve, &softmax, true, s.Shapes[len(s.Shapes)-1]); err != nil {
		return nil, err
	}
	times, err := w.race(list, s.Each, time.Hour)
	if err != nil {
		return nil, err
	}
	for i, t := range times {
		out[i].Ms, out[i].Bytes = t.Ms, out[i].Bytes+t.Bytes
	}
	return out, nil
}

// pace returns the seconds of a mechanism's first updates in a training of steps updates, from
// the times of updates; ok is false if one was not timed.
func (l *lesson) pace(speeds []updateSpeed, label string) func(first, steps int) (seconds float64, ok bool) {
	each := map[int]float64{} // seconds of a sample, by its length
	for _, v := range speeds {
		if v.Curve == label && v.Ms > 0 {
			each[v.Shape.Context] = v.Ms / 1e3 / float64(v.Shape.Batch)
		}
	}
	return func(first, steps int) (seconds float64, ok bool) {
		updates := countShapes(l.grown(steps), first)
		for _, of := range sortedShapes(updates) {
			if each[of.Context] == 0 {
				return 0, false
			}
			seconds += float64(updates[of]*of.Batch) * each[of.Context]
		}
		return seconds, true
	}
}

// average holds means of a mechanism's results over the tasks.
type average struct {
	accuracy, speed, bytes []float64
}

func fig5Outcome(o *Options, r *Results) (*Outcome, error) {
	return fig5Lessons.outcome(func(out *Outcome, list []scored) error {
		of := map[string]*average{}
		for _, m := range fig5Curves {
			of[m.Label] = new(average)
		}
		tasks := ""
		race := arenaTable()
		most := 0 // mechanisms of a lesson; lessons of fewer are not averaged
		for i := range list {
			most = max(most, len(list[i].Methods))
		}
		for i := range list {
			s := &list[i]
			speeds, _, err := get[[]updateSpeed](r, speedPiece(s.lesson))
			if err != nil {
				return err
			}
			if o.Budget == Hour {
				out.compareArena(&race, s, speeds)
			}
			if len(s.Methods) < most {
				continue
			}
			tasks += ", " + s.Name
			for _, x := range s.Results {
				of[x.Label].accuracy = append(of[x.Label].accuracy, 100*x.Value)
				if x.Label == softmax.Label { // the same function
					of[matrixCurve].accuracy = append(of[matrixCurve].accuracy, 100*x.Value)
				}
			}
			for _, v := range speeds {
				if n := float64(v.Shape.Batch); v.Ms > 0 && v.Shape.Context == s.Length {
					of[v.Curve].speed = append(of[v.Curve].speed, 1e3/v.Ms*n)
					of[v.Curve].bytes = append(of[v.Curve].bytes, v.Bytes/n)
				}
			}
		}
		if len(race.Rows) > 0 {
			out.Tables = append(out.Tables, race)
		}
		t := report.Table{
			Title: "Averages over tasks: published over five, here over " + tasks[2:],
			Head:  []string{"mechanism", "published accuracy, %", "published steps a second", "accuracy here, %", "sequences a second", "times softmax's, published", "here", "MB a sequence"},
			Note: "Steps of samples whose lengths are spread as in the task, timed in turns. Memory: what an update keeps for its backward pass and takes besides, weights, gradients and moments aside. " +
				"softmax is tiled here and needs no more than others; the published one writes its matrix down. " + otherFastmax,
		}
		if o.Budget == Hour && !o.Tune {
			t.Note += " The function of the program of FAST's authors is in [arena](arena.md). Three rates of expressions, for softmax, order 2 and linear attention, take 1.4 hours of one core, by the seconds above: `farfield-lab reproduce fast-fig5 --budget hour --tune --pieces '^listops-(softmax|linear|fastmax-2--scale-1)-'`."
		}
		base, _ := mean(of[softmax.Label].speed)
		f := report.Figure{Title: "Accuracy over speed, memory as area", XLabel: "training sequences a second", YLabel: "accuracy, %", YLinear: true}
		best, at := math.Inf(-1), ""
		for i, m := range fig5Curves {
			x := of[m.Label]
			if i >= len(fig5Published) && m.Label != matrixCurve && len(x.accuracy)+len(x.speed) == 0 {
				continue // not of this budget
			}
			accuracy, _ := mean(x.accuracy)
			speed, _ := mean(x.speed)
			bytes, _ := mean(x.bytes)
			published, ratio := none, none
			if m.speed > 0 {
				published, ratio = fmt.Sprint(m.speed), digits(m.speed/fig5Published[0].speed)
			}
			cells := []string{m.Label, none, published, none, none, ratio, none, none}
			if m.accuracy > 0 {
				cells[1] = fmt.Sprintf("%.2f", m.accuracy)
			}
			if m.Label == fastmax1.Label || m.Label == fastmax2.Label {
				for _, i := range []int{1, 2, 5} { // what is published
					cells[i] += otherMark
				}
			}
			if len(x.accuracy) > 0 {
				cells[3] = fmt.Sprintf("%.2f", accuracy)
			}
			if speed > 0 {
				cells[4], cells[7] = digits(speed), digits(bytes/1e6)
				if base > 0 {
					cells[6] = digits(speed / base)
				}
			}
			addRow(&t, cells...)
			if len(x.accuracy) == 0 || speed == 0 {
				continue
			}
			f.Series = append(f.Series, report.Series{Name: m.Label, X: []float64{speed}, Y: []float64{accuracy}, Size: []float64{max(0, bytes)}, Style: report.Bubbles})
			if speed > best {
				best, at = speed, fmt.Sprintf("%s with %s sequences a second, %s times softmax's, and %.2f %%", m.Label, digits(speed), digits(speed/base), accuracy)
			}
		}
		out.Tables = append(out.Tables, t)
		if len(f.Series) > 0 {
			out.Figures = append(out.Figures, Drawing{"accuracy-over-speed", f})
			out.find("The fastest is %s.", at)
		}
		return nil
	})(o, r)
}
