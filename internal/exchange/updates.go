package exchange

import (
	"math"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/optim"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

const (
	updateTokens = 2048 // of the windows of an update, at least
	updateRate   = 0.02 // the highest rate of learning, as a multiple of the size of the numbers that change
	updateWarmUp = 10   // updates in which it rises
	updatePasses = 4    // passes as long as a window's part in an update
)

// learner changes numbers.
type learner struct {
	params   *param.Set
	adam     *optim.AdamW
	schedule optim.Cosine
}

// newLearner returns a learner of p.
func newLearner(p *param.Param, updates int) *learner {
	l := &learner{params: new(param.Set)}
	l.params.Add(p)
	l.adam = optim.NewAdamW(l.params)
	l.schedule = optim.Cosine{Peak: updateRate * sizeOf(p.Data), WarmUp: updateWarmUp, Steps: updates}
	return l
}

// sizeOf returns the root mean square of x without numbers that are a hundred times as large as the
// median: logarithms of weights of empty cells.
func sizeOf(x []float32) float64 {
	sizes := make([]float64, len(x))
	for i, y := range x {
		sizes[i] = math.Abs(float64(y))
	}
	slices.Sort(sizes)
	var sum float64
	n := 0
	for _, y := range sizes {
		if y <= 100*sizes[len(sizes)/2] {
			sum += y * y
			n++
		}
	}
	return math.Sqrt(sum / float64(max(n, 1)))
}

// update changes the numbers of the mechanisms of layers so that the outputs of the model with them come
// closer to those of the trained one, in windows drawn from those of the calibration.
func (r *run) update(list map[int]attention.Mechanism, what string) error {
	var learners []*learner
	for _, i := range r.layers {
		if list[i] == nil {
			continue
		}
		for _, p := range list[i].Params().All() {
			learners = append(learners, newLearner(p, r.Updates))
		}
	}
	defer r.s.Model.Params().ZeroGrad() // of weights that do not change
	t := &teaching{s: r.s}
	drawn := 0
	for update := range r.Updates {
		for _, l := range learners {
			l.params.ZeroGrad()
		}
		var windows [][]int32
		for tokens := 0; tokens < updateTokens; tokens += len(windows[len(windows)-1]) {
			windows = append(windows, r.drawWindow(drawn))
			drawn++
		}
		if update%10 == 0 {
			r.say(10*float64(updatePasses*len(windows))/float64(len(r.refs[0].windows)), "%s, update %d of %d", what, update+1, r.Updates)
		}
		for _, ids := range windows {
			if err := t.learn(r, ids, list, 1/float64(len(windows))); err != nil {
				return err
			}
		}
		for _, l := range learners {
			l.adam.Step(l.schedule.Rate(update), 1)
		}
	}
	return nil
}

// drawWindow returns the window of the calibration that is drawn as number n: each comes once before one
// comes again.
func (r *run) drawWindow(n int) []int32 {
	all := len(r.calibration)
	key, at := rng.New(r.Seed).Fold(1).Fold(uint64(n/all)), n%all
	order := make([]int, all)
	for i := range order {
		order[i] = i
	}
	for i := range at + 1 {
		j := i + int(key.Intn(uint64(i), all-i))
		order[i], order[j] = order[j], order[i]
	}
	return r.calibration[order[at]]
}

// teaching has the room for outputs of the trained model and of another.
type teaching struct {
	s          *Subject
	want, made []float32
}

// learn adds share times the gradient of the loss in a window to the gradients of the mechanisms of list.
func (t *teaching) learn(r *run, ids []int32, list map[int]attention.Mechanism, share float64) error {
	b, err := t.s.batch(r.ctx, ids)
	if err != nil {
		return err
	}
	m := t.s.Model
	replace := func(i int) attention.Mechanism { return list[i] }
	if t.s.predictsNext() {
		c := m.Config()
		width := c.Outputs
		if width == 0 {
			width = c.Vocab
		}
		n := len(ids) * width
		t.want, t.made = slices.Grow(t.want[:0], n)[:n], slices.Grow(t.made[:0], n)[:n]
		if err := m.Logits(r.ctx, b, t.want); err != nil {
			return err
		}
		return t.s.with(replace, func() error {
			if err := m.ForwardLogits(r.ctx, b, t.made); err != nil {
				return err
			}
			divergence(t.made, t.want, width, share)
			return m.BackwardLogits(t.made, 1)
		})
	}
	want, err := t.s.answer(r.ctx, ids)
	if err != nil {
		return err
	}
	return t.s.with(replace, func() error {
		rows, err := m.Outputs(r.ctx, b)
		if err != nil {
			return err
		}
		t.made = append(t.made[:0], rows.Data[:rows.Rows*rows.Stride]...)
		made := tensor.Mat{Data: t.made, Rows: rows.Rows, Cols: rows.Cols, Stride: rows.Stride}
		for i := range made.Rows {
			turn(made.Row(i), want.rows[i*want.width:][:want.width], share/float64(made.Rows))
		}
		return m.BackwardOutputs(made, 1)
	})
}

// divergence replaces logits [n,width] by share times the gradient of the Kullback-Leibler divergence of
// their distributions from those of want, in the mean over rows.
func divergence(logits, want []float32, width int, share float64) {
	n := len(logits) / width
	for i := range n {
		x, y := logits[i*width:][:width], want[i*width:][:width]
		a, b := logSum(x), logSum(y)
		for j := range x {
			x[j] = float32((math.Exp(float64(x[j])-a) - math.Exp(float64(y[j])-b)) * share / float64(n))
		}
	}
}

// logSum returns the logarithm of the sum of the exponentials of x.
func logSum(x []float32) float64 {
	most, sum := float64(slices.Max(x)), 0.0
	for _, y := range x {
		sum += math.Exp(float64(y) - most)
	}
	return most + math.Log(sum)
}

// turn replaces row by share times the gradient of 1 less the cosine of its angle with want.
func turn(row, want []float32, share float64) {
	var ab, aa, bb float64
	for i := range row {
		x, y := float64(row[i]), float64(want[i])
		ab, aa, bb = ab+x*y, aa+x*x, bb+y*y
	}
	if aa == 0 || bb == 0 {
		clear(row)
		return
	}
	size := math.Sqrt(aa * bb)
	for i := range row {
		row[i] = float32(share * (ab/size*float64(row[i])/aa - float64(want[i])/size))
	}
}

// tune trains the queries of the cells of best, if it is fitted, and of cheaper choices as long as they then
// meet the wish. It returns the last that does, or best.
func (r *run) tune(list []Trial, best *Trial, allowed *float64, x *Result) (*Trial, error) {
	if !best.Fitted {
		return best, nil
	}
	better, err := r.tuned(best, x)
	if err != nil || allowed == nil || better.loss() > *allowed {
		return better, err
	}
	for i := slices.IndexFunc(list, func(t Trial) bool { return t.Choice == best.Choice }) - 1; i >= 0; i-- {
		if !list[i].Fitted {
			continue
		}
		if err := r.try(&list[i], r.layers); err != nil {
			return nil, err
		}
		cheaper, err := r.tuned(&list[i], x)
		if err != nil {
			return nil, err
		}
		if cheaper.loss() > *allowed {
			break
		}
		better = cheaper
	}
	return better, nil
}

// tuned returns the trial of t, which was tried, after updates. Where they lose more, the queries are
// again what they were before.
func (r *run) tuned(t *Trial, x *Result) (*Trial, error) {
	before := r.tilts[t.place()]
	list := map[int]attention.Mechanism{}
	for i := range before {
		m, err := r.mechanism(i, t.Choice)
		if err != nil {
			return nil, err
		}
		list[i] = m
	}
	if err := r.update(list, t.String()); err != nil {
		return nil, err
	}
	after := map[int][]float32{}
	for i, m := range list {
		p, err := m.Params().Get("tilt")
		if err != nil {
			return nil, err
		}
		after[i] = p.Data
	}
	r.tilts[t.place()] = after
	y := &Trial{Choice: t.Choice, Cost: t.Cost, Updates: r.Updates}
	if err := r.try(y, r.layers); err != nil {
		return nil, err
	}
	x.Trials = append(x.Trials, *y)
	if y.loss() >= t.loss() {
		r.tilts[t.place()] = before
		return t, nil
	}
	r.untuned[t.place()] = before
	return y, nil
}
