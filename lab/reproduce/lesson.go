package reproduce

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/train"
)

// lesson is a task that several mechanisms learn in the same way.
type lesson struct {
	Name    string // of pieces and tables
	Config  train.Config
	Methods []method
	Seeds   int // unless the options say otherwise
	// Length and Vocab of the task's samples, for counting operations before it is opened.
	Length, Vocab int
	Baseline      bool // the task's own baselines are asked for
	// EqualSeconds gives each mechanism the updates that fit into softmax's time.
	EqualSeconds bool
	// look, if not nil, is asked for something more of a trained model.
	look func(*train.Trainer) (any, error)
	// open, if not nil, opens samples that no task of the catalogue has, in a folder of data sets.
	open func(folder string) (task.Source, error)
	// Gradients sums up the norms of the gradients of all updates.
	Gradients bool
}

// openTask returns the samples of the lesson.
func (l *lesson) openTask(c *train.Config) (task.Source, error) {
	if l.open != nil {
		return l.open(c.Folder)
	}
	return c.OpenTask()
}

// presetLesson returns the lesson of a preset of package train.
func presetLesson(name, preset string, steps int, set map[string]string) (*lesson, error) {
	p, err := train.LookupPreset(preset)
	if err != nil {
		return nil, err
	}
	l := &lesson{Name: name, Config: p.Config}
	c := &l.Config
	settings := map[string]string{}
	for k, v := range c.TaskSet {
		settings[k] = v
	}
	for k, v := range set {
		settings[k] = v
	}
	if c.TaskSet = settings; len(settings) == 0 {
		c.TaskSet = nil
	}
	if brief[c.Task] != nil { // of expressions each row says itself whether they grow
		c.FirstContext, c.FirstBatch = 0, 0
	}
	setUpdates(c, steps)
	return l, nil
}

// setUpdates sets the number of updates, and after how many to warm up, to validate and to
// save.
func setUpdates(c *train.Config, steps int) {
	c.Steps = steps
	c.WarmUp = min(c.WarmUp, steps/10)
	c.EvalEvery, c.SaveEvery = max(1, steps/10), max(1, steps/10)
}

// tuning multiplies the rate of learning: the same grid for every mechanism.
var tuning = []float64{0.25, 1, 4}

// configFor returns the configuration of one training: a method, a seed, and a factor of
// the learning rate.
func (l *lesson) configFor(m *method, seed uint64, factor float64) train.Config {
	c := l.Config
	if m.Name == "" { // convolutions alone take the place of attention
		c.Model.Mechanism, c.Model.Set, c.Model.Heads = "", nil, 0
		c.Model.Layers++
	} else {
		c.SetMechanism(m.Name)
		c.Model.Order, c.Model.Set = m.Order, m.Set
	}
	c.Seed = seed
	c.Rate, c.MinRate = c.Rate*factor, c.MinRate*factor
	if m.change != nil {
		m.change(&c)
	}
	return c
}

func (l *lesson) piece(m *method, seed uint64, factor float64) string {
	name := fmt.Sprintf("%s-%s-seed-%d", l.Name, m.file(), seed)
	if factor != 1 {
		name += fmt.Sprintf("-rate-%.0f-percent", 100*factor)
	}
	return name
}

func (l *lesson) baselinePiece() string { return l.Name + "-baselines" }

// seeds returns the seeds of a method.
func (l *lesson) seeds(o *Options, m *method) []uint64 {
	if m.Single {
		return []uint64{1}
	}
	return o.seeds(l.Seeds)
}

func (l *lesson) factors(o *Options) []float64 {
	if o.Tune {
		return tuning
	}
	return []float64{1}
}

// flops counts the operations of a training.
func (l *lesson) flops(c *train.Config) (sum float64) {
	m := c.Model
	m.Context, m.Vocab = l.Length, max(l.Vocab, 2)
	if m.Kind == "" {
		m.Kind = model.Encoder
	}
	grown := *c
	grown.Model.Context = l.Length // open where the task decides
	updates := countShapes(&grown, c.Steps)
	for _, x := range sortedShapes(updates) {
		m.Context = x.Context
		sum += m.TrainFLOPs(float64(updates[x] * c.Accumulate * x.Batch * x.Context))
	}
	return sum
}

// pieces are the trainings of the lesson and its baselines.
func (l *lesson) pieces(o *Options) (list []Piece) {
	if l.Baseline {
		c := l.Config
		type config struct {
			Task    string            `json:"task"`
			Set     map[string]string `json:"set,omitempty"`
			Samples int               `json:"samples"`
		}
		const samples = 2000
		list = append(list, Piece{
			Name: l.baselinePiece(), Config: config{c.Task, c.TaskSet, samples}, FLOPs: plainLoopCost * 1e8,
			run: func(*Work) (any, error) {
				c.Folder = o.Data
				src, err := l.openTask(&c)
				if err != nil {
					return nil, err
				}
				return task.Baselines(src, samples)
			},
		})
	}
	for i := range l.Methods {
		m := &l.Methods[i]
		first := l.configFor(m, 1, 1)
		flops := l.flops(&first) // of every seed and rate
		for _, factor := range l.factors(o) {
			for _, seed := range l.seeds(o, m) {
				c := l.configFor(m, seed, factor)
				p := Piece{
					Name: l.piece(m, seed, factor), Config: c, FLOPs: flops,
					run: func(w *Work) (any, error) {
						c.Folder = o.Data
						return l.learn(w, c, nil)
					},
				}
				if l.EqualSeconds && m.Name != softmax.Name {
					l.equalise(&p, c, o.Data)
				}
				list = append(list, p)
			}
		}
	}
	return list
}

// learned is what came of a training.
type learned struct {
	Params int          `json:"params"`
	Rate   float64      `json:"lr"`
	Score  train.Score  `json:"score"` // of the judged split
	Steps  []train.Step `json:"steps"` // some of them, evenly
	Evals  []train.Eval `json:"evals"`
	Look   any          `json:"look,omitempty"`
	// Diverged says where a training ended whose loss was no number; it has no Score.
	Diverged string `json:"diverged,omitempty"`
	// Updates counts the updates of a training of equal seconds.
	Updates int `json:"updates,omitempty"`
	// Learn is how many samples there are to learn from; 0: not recorded.
	Learn int `json:"learn,omitempty"`
	// Norms are of the gradients of all updates, if the lesson asks for them.
	Norms *normSummary `json:"norms,omitempty"`
	// Cost is the processor time of a training in one go, in seconds; 0: it was interrupted.
	Cost float64 `json:"processor_s,omitempty"`

	seed uint64
}

// curvePoints are how many steps of a training are kept for figures.
const curvePoints = 200

// learn makes a training, which goes on where it was interrupted. settle, if not nil,
// completes the configuration of a training that begins.
func (l *lesson) learn(w *Work, c train.Config, settle func(*train.Config, task.Source) error) (any, error) {
	src, err := l.openTask(&c)
	if err != nil {
		return nil, err
	}
	t, err := train.Resume(src, w.Folder)
	began := errors.Is(err, fs.ErrNotExist)
	if began {
		if err = nil; settle != nil {
			err = settle(&c, src)
		}
		if err == nil {
			t, err = train.New(c, src, w.Folder)
		}
	}
	if err != nil {
		return nil, err
	}
	defer t.Close()
	steps, cost := t.Config().Steps, processorSeconds()
	score, err := t.Train(w.Ctx, train.Observer{Step: func(s train.Step) { w.reportShare(float64(s.Step) / float64(steps)) }})
	ended := ""
	if errors.Is(err, train.ErrDiverged) {
		ended, err = err.Error(), nil
	}
	if err == nil {
		err = t.Close()
	}
	if err != nil {
		return nil, err
	}
	curve, evals, err := train.ReadMetrics(w.Folder)
	if err != nil {
		return nil, err
	}
	r := learned{Params: t.Model().Params().Size(), Rate: c.Rate, Score: score, Evals: evals, Diverged: ended, Learn: src.Spec().Count[task.Train]}
	if began {
		r.Cost = processorSeconds() - cost
	}
	if l.EqualSeconds {
		r.Updates = steps
	}
	if l.Gradients {
		r.Norms = sumNorms(curve)
	}
	every := max(1, len(curve)/curvePoints)
	for i, s := range curve {
		if i%every == every-1 || i == len(curve)-1 {
			r.Steps = append(r.Steps, s)
		}
	}
	if l.look == nil || ended != "" {
		return r, nil
	}
	err = w.do(func() (err error) {
		r.Look, err = l.look(t)
		return err
	})
	return r, err
}

// diverged stands where a training has no score.
const diverged = "diverged"

// result is what came of a mechanism in a lesson.
type result struct {
	*method
	Factor float64 // of the rate of learning
	Runs   []learned
	Value  float64 // mean over the seeds
	Spread float64 // standard deviation of the seeds
}

// results returns what came of each mechanism, by the rate that did best on the
// validation part. The table has what all rates did.
func (l *lesson) results(o *Options, r *Results) (list []result, tuned *report.Table, err error) {
	tuned = &report.Table{Title: l.Name + ": score on the validation part by rate of learning", Head: []string{"mechanism"},
		Note: "The same grid for every mechanism; the best of each is used."}
	for _, f := range l.factors(o) {
		tuned.Head = append(tuned.Head, digits(f*l.Config.Rate))
	}
	for i := range l.Methods {
		m := &l.Methods[i]
		var best *result
		bestLook := math.NaN()
		cells := []string{m.Label}
		for _, factor := range l.factors(o) {
			x := result{method: m, Factor: factor}
			var values, looks []float64
			failed := false
			for _, seed := range l.seeds(o, m) {
				run, found, err := get[learned](r, l.piece(m, seed, factor))
				if err != nil {
					return nil, nil, err
				}
				if !found {
					continue
				}
				if run.Diverged != "" {
					failed = true
					continue
				}
				run.seed = seed
				x.Runs = append(x.Runs, run)
				values = append(values, run.Score.Value)
				look := run.Score.Value
				for _, e := range run.Evals {
					if e.Eval == train.EvalLook {
						look = e.Value
					}
				}
				looks = append(looks, look)
			}
			if failed {
				cells = append(cells, diverged)
				continue
			}
			if len(values) == 0 {
				cells = append(cells, none)
				continue
			}
			x.Value, x.Spread = mean(values)
			look, _ := mean(looks)
			cells = append(cells, digits(look))
			if best == nil || x.Runs[0].Score.Metric.IsBetter(look, bestLook) {
				best, bestLook = &x, look
			}
		}
		if best != nil {
			list = append(list, *best)
		}
		if slices.ContainsFunc(cells[1:], func(s string) bool { return s != none }) {
			addRow(tuned, cells...)
		}
	}
	return list, tuned, nil
}

// lessons make a row of trainings.
type lessons func(*Options) ([]*lesson, error)

func (f lessons) pieces(o *Options) (list []Piece, err error) {
	all, err := f(o)
	if err != nil {
		return nil, err
	}
	for _, l := range all {
		list = append(list, l.pieces(o)...)
	}
	return list, nil
}

// namedHour names the command that makes the pieces of the hour that a pattern matches, and their hours.
// The empty pattern matches all.
func (f lessons) namedHour(row, pattern string) (string, error) {
	pieces, err := f.pieces(&Options{Budget: Hour})
	if err != nil {
		return "", err
	}
	only, r := regexp.MustCompile(pattern), new(Results)
	for i := range pieces {
		if only.MatchString(pieces[i].Name) {
			r.lack(&pieces[i])
		}
	}
	command := "farfield-lab reproduce " + row + " --budget hour"
	if pattern != "" {
		command += " --pieces '" + pattern + "'"
	}
	return fmt.Sprintf("`%s`, about %s hours at 50 GFLOP/s and up to three times as long", command, digits(r.lacking.Hours())), nil
}

// scored is a lesson with what came of it.
type scored struct {
	*lesson
	Results   []result
	Baselines []task.Baseline
}

// outcome makes the tables and figures that all rows of trainings have, and what
// more says in findings.
func (f lessons) outcome(more func(*Outcome, []scored) error) func(*Options, *Results) (*Outcome, error) {
	return func(o *Options, r *Results) (*Outcome, error) {
		all, err := f(o)
		if err != nil {
			return nil, err
		}
		out := new(Outcome)
		var list []scored
		for _, l := range all {
			results, tuned, err := l.results(o, r)
			if err != nil {
				return nil, err
			}
			s := scored{lesson: l, Results: results}
			if s.Baselines, _, err = get[[]task.Baseline](r, l.baselinePiece()); err != nil {
				return nil, err
			}
			for _, row := range tuned.Rows {
				for i, cell := range row {
					if cell == diverged {
						out.find("%s: %s diverged at a rate of learning of %s.", s.Name, row[0], tuned.Head[i])
					}
				}
			}
			if len(results) == 0 {
				if len(s.Baselines) > 0 {
					out.Tables = append(out.Tables, baselineTable(&s))
				}
				continue
			}
			list = append(list, s)
			out.Tables = append(out.Tables, s.table())
			if o.Tune {
				out.Tables = append(out.Tables, *tuned)
			}
			out.Figures = append(out.Figures, s.figures()...)
			out.order(&s)
		}
		if len(list) == 0 {
			return out, nil
		}
		return out, more(out, list)
	}
}

// table returns the scores of a lesson beside the scores of simple means.
func (s *scored) table() report.Table {
	metric := s.Results[0].Runs[0].Score.Metric
	t := report.Table{
		Title: s.Name, Head: []string{"mechanism", string(metric), "± of seeds", "seeds", "lr", "updates", "parameters", "seconds"},
		Note: fmt.Sprintf("Task %s, %d samples an update. Scores are of the part that judges the task. Seconds are of a whole training with its validations, while other programs ran.", s.Config.Task, s.Config.Batch*s.Config.Accumulate),
	}
	for _, x := range s.Results {
		var seconds []float64
		for _, run := range x.Runs {
			if n := len(run.Steps); n > 0 {
				seconds = append(seconds, run.Steps[n-1].Elapsed)
			}
		}
		took, _ := mean(seconds)
		spread := none
		if len(x.Runs) > 1 {
			spread = digits(x.Spread)
		}
		last := x.Runs[0]
		updates := s.Config.Steps
		if last.Updates > 0 {
			updates = last.Updates
		}
		addRow(&t, x.Label, digits(x.Value), spread, fmt.Sprint(len(x.Runs)), digits(last.Rate), fmt.Sprint(updates), fmt.Sprint(last.Params), digits(took))
	}
	switch n := s.Results[0].Runs[0].Learn; {
	case n > 0:
		t.Note += fmt.Sprintf(" There are %d samples to learn from.", n)
	case n == task.Endless:
		t.Note += " Samples to learn from are drawn without end."
	}
	if s.EqualSeconds {
		t.Note += equalNote
	}
	if len(s.Baselines) > 0 {
		most := task.Baseline{}
		for _, b := range s.Baselines {
			most.Learned, most.Judged = max(most.Learned, b.Learned), max(most.Judged, b.Judged)
		}
		unit := "samples"
		if metric == task.Nats { // baselines of texts
			unit = "tokens"
		}
		t.Note += fmt.Sprintf(" Baselines learn from %d %s at most and are judged by %d.", most.Learned, unit, most.Judged)
	}
	for _, b := range s.Baselines {
		addRow(&t, b.Name+" (baseline)", digits(b.Score), none, none, none, none, none, none)
	}
	return t
}

// baselineTable has the scores of simple methods in a lesson without trainings.
func baselineTable(s *scored) report.Table {
	t := report.Table{Title: s.Name + ": simple methods alone", Head: []string{"baseline", "score", "learned from", "judged by"}}
	for _, b := range s.Baselines {
		addRow(&t, b.Name, digits(b.Score), fmt.Sprint(b.Learned), fmt.Sprint(b.Judged))
	}
	return t
}

// smoothed is the share of a curve that a running mean is of.
const smoothed = 20

// figures are the loss by step and by second, as running means.
func (s *scored) figures() []Drawing {
	step := report.Figure{Title: s.Name + ": training loss by update", XLabel: "updates", YLabel: "loss, mean of the last twentieth"}
	second := report.Figure{Title: s.Name + ": training loss by second", XLabel: "seconds", YLabel: step.YLabel}
	for _, x := range s.Results {
		run := x.Runs[0]
		var at, clock, loss []float64
		for _, p := range run.Steps {
			if p.Loss > 0 && p.Elapsed > 0 {
				at, clock, loss = append(at, float64(p.Step)), append(clock, p.Elapsed), append(loss, p.Loss)
			}
		}
		if len(at) > 0 {
			loss = running(loss, max(1, len(loss)/smoothed))
			step.Series = append(step.Series, report.Series{Name: x.Label, X: at, Y: loss})
			second.Series = append(second.Series, report.Series{Name: x.Label, X: clock, Y: loss})
		}
	}
	if len(step.Series) == 0 {
		return nil
	}
	return []Drawing{{s.Name + "-by-update", step}, {s.Name + "-by-second", second}}
}

// running returns the means of each of x and those before it, n in all where there
// are as many.
func running(x []float64, n int) []float64 {
	y := make([]float64, len(x))
	for i := range x {
		y[i], _ = mean(x[max(0, i+1-n) : i+1])
	}
	return y
}

// order finds the order of the mechanisms, as far as it exceeds the spread of
// the seeds, and which of them beat all baselines.
func (out *Outcome) order(s *scored) {
	list := slices.Clone(s.Results)
	metric := list[0].Runs[0].Score.Metric
	slices.SortStableFunc(list, func(a, b result) int {
		switch {
		case metric.IsBetter(a.Value, b.Value):
			return -1
		case metric.IsBetter(b.Value, a.Value):
			return 1
		}
		return 0
	})
	best := list[0]
	var behind []string
	for _, x := range list[1:] {
		if len(x.Runs) > 1 && len(best.Runs) > 1 && math.Abs(x.Value-best.Value) > x.Spread+best.Spread {
			behind = append(behind, x.Label)
		}
	}
	unit, factor := "", 1.0
	if metric == task.Nats {
		unit = " nats per token"
		if first := best.Runs[0].Score; first.Bits > 0 && first.Value > 0 {
			unit, factor = " bits per byte", first.Bits/first.Value
		}
	}
	finding := fmt.Sprintf("%s: %s is best with %s%s", s.Name, best.Label, digits(factor*best.Value), unit)
	switch {
	case len(behind) > 0:
		finding += ", by more than the spread of the seeds ahead of " + listed(behind)
	case len(best.Runs) > 1:
		finding += ", by no more than the spread of the seeds"
	default:
		finding += " (one seed, so the order may be chance)"
	}
	if len(s.Baselines) > 0 {
		top := s.Baselines[0]
		for _, b := range s.Baselines {
			if metric.IsBetter(b.Score, top.Score) {
				top = b
			}
		}
		var beats []string
		for _, x := range list {
			if metric.IsBetter(x.Value-sign(metric)*max(x.Spread, twoErrors(&x, &top)), top.Score) {
				beats = append(beats, x.Label)
			}
		}
		ahead := "ahead of it" + s.margin()
		if len(beats) == 0 {
			ahead = "none is " + ahead
		} else {
			ahead += ": " + listed(beats)
		}
		finding += fmt.Sprintf(". The best simple method, %s, has %s; %s", top.Name, digits(factor*top.Score), ahead)
	}
	out.find("%s.", finding)
}

// margin says by how much a mechanism is ahead of a baseline.
func (s *scored) margin() string {
	seeds, single := false, false
	for i := range s.Results {
		if len(s.Results[i].Runs) < 2 {
			single = true
		} else {
			seeds = true
		}
	}
	var by []string
	if seeds {
		spread := "the spread of the seeds"
		if single {
			spread += ", where there are several,"
		}
		by = append(by, spread)
	}
	if knowsErrors(s.Results[0].Runs[0].Score) {
		by = append(by, "two standard errors of the samples")
	}
	if len(by) == 0 {
		return ""
	}
	text := " by more than " + strings.Join(by, " and ")
	return strings.TrimSuffix(text, ",")
}

// knowsErrors reports whether the standard error of a score is known.
func knowsErrors(s train.Score) bool { return s.Metric == task.Accuracy || s.Error > 0 }

// twoErrors returns twice the standard error of the difference between the scores of a mechanism and a
// baseline, which may be judged by different samples. It is 0 where the error is not known.
func twoErrors(x *result, b *task.Baseline) float64 {
	score := x.Runs[0].Score
	own, other := score.Error*score.Error, b.Error*b.Error
	if score.Metric == task.Accuracy {
		if own == 0 && score.Samples > 0 {
			own = x.Value * (1 - x.Value) / float64(score.Samples)
		}
		if b.Judged > 0 {
			other = b.Score * (1 - b.Score) / float64(b.Judged)
		}
	}
	return 2 * math.Sqrt(own/float64(len(x.Runs))+other)
}

// sign is 1 where more is better, or else -1.
func sign(m task.Metric) float64 {
	if m.IsBetter(1, 0) {
		return 1
	}
	return -1
}
