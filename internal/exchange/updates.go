package exchange

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/optim"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// updateTokens is the least number of tokens in the windows of an update. Tests have fewer.
var updateTokens = 2048

const (
	updateRate   = 0.02 // the highest rate of learning, as a multiple of the size of the numbers that change
	updateWarmUp = 10   // updates in which it rises
	updatePasses = 4    // passes as long as a window's part in an update
	judgingPart  = 5    // of this many windows, one judges updates

	maxLogitBytes = 4 << 30 // of the outputs of both models for a window
)

// learner changes numbers.
type learner struct {
	params   *param.Set
	adam     *optim.AdamW
	schedule optim.Cosine
}

// newLearner returns a learner of p. live says which of as many equal rows of p are in use; nil: all.
func newLearner(p *param.Param, live []bool, updates int) *learner {
	l := &learner{params: new(param.Set)}
	l.params.Add(p)
	l.adam = optim.NewAdamW(l.params)
	l.schedule = optim.Cosine{Peak: updateRate * sizeOf(p.Data, live), WarmUp: updateWarmUp, Steps: updates}
	return l
}

// sizeOf returns the root mean square of the live rows of x; live nil: of all.
func sizeOf(x []float32, live []bool) float64 {
	var sum float64
	n := 0
	for i, y := range x {
		if live == nil || live[i/(len(x)/len(live))] {
			sum += float64(y) * float64(y)
			n++
		}
	}
	return math.Sqrt(sum / float64(max(n, 1)))
}

// checkUpdates returns an error if updates cannot be made: there are fewer than none, no fit from which
// they go on, weights without gradients, too few windows, or windows whose outputs take too much room.
func (r *run) checkUpdates(windows [][]int32) error {
	if r.Updates < 0 {
		return fmt.Errorf("updates: %d, needs 0 or more", r.Updates)
	}
	if r.Updates == 0 {
		return nil
	}
	longest := 0
	for _, ids := range windows {
		longest = max(longest, len(ids))
	}
	width := cmp.Or(r.config.Outputs, r.config.Vocab)
	switch room := 2 * 4 * longest * width; {
	case r.Fit == 0:
		return fmt.Errorf("updates: %d, and fit is 0 tokens; updates go on from a fit", r.Updates)
	case r.s.Model.Precision() != nn.Float32:
		return fmt.Errorf("updates: %d, and the weights are held as %v; updates need f32", r.Updates, r.s.Model.Precision())
	case len(windows) < 2:
		return fmt.Errorf("updates: %d, and texts have %d window to make codebooks of, needs 2: one to learn from, one to judge the updates by; give more text or tokens, or a smaller length", r.Updates, len(windows))
	case r.s.predictsNext() && room > maxLogitBytes:
		return fmt.Errorf("updates: %d, and outputs of %d tokens of %d words take %d bytes, at most %d; give a smaller length", r.Updates, longest, width, room, maxLogitBytes)
	}
	return nil
}

// leaveOut divides windows into those that updates draw, and others that judge them, spread evenly. The
// latter are windows that the fit does not see, if there are enough.
func leaveOut(windows, fitTo [][]int32) (learn, judge [][]int32) {
	seen := map[*int32]bool{}
	for _, ids := range fitTo {
		seen[&ids[0]] = true
	}
	var free, rest []int
	for i, ids := range windows {
		if seen[&ids[0]] {
			rest = append(rest, i)
		} else {
			free = append(free, i)
		}
	}
	n, out := max(1, len(windows)/judgingPart), make([]bool, len(windows))
	for _, list := range [][]int{free, rest} {
		k := min(n, len(list))
		for i := range k {
			out[list[(2*i+1)*len(list)/(2*k)]] = true
		}
		n -= k
	}
	for i, ids := range windows {
		if out[i] {
			judge = append(judge, ids)
		} else {
			learn = append(learn, ids)
		}
	}
	return learn, judge
}

// update changes the numbers of the mechanisms of layers so that the outputs of the model with them come
// closer to those of the trained one, in windows drawn from those of the calibration.
func (r *run) update(list map[int]attention.Mechanism, of *training) error {
	var learners []*learner
	for _, i := range r.layers {
		if list[i] == nil {
			continue
		}
		for _, p := range list[i].Params().All() {
			var live []bool
			if x, ok := list[i].(*frozenFar); ok {
				live = x.live
			}
			learners = append(learners, newLearner(p, live, r.Updates))
		}
	}
	defer r.s.Model.Params().ZeroGrad() // of weights that do not change
	file, err := r.newUpdatesFile(learners, of)
	if err != nil {
		return err
	}
	first, drawn, err := file.load()
	if err != nil {
		return err
	}
	t := &teaching{s: r.s}
	windows := (updateTokens + len(r.calibration[0]) - 1) / len(r.calibration[0])
	passes := float64(updatePasses*windows) / float64(len(r.refs[0].windows))
	r.expected -= passes * float64(first)
	for update := first; update < r.Updates; update++ {
		if (update-first)%10 == 0 {
			r.say(10*passes, "%s, update %d of %d", of.what, update+1, r.Updates)
		}
		n, err := r.updateOnce(t, learners, list, update, drawn)
		if err != nil {
			if r.ctx.Err() != nil { // the numbers are those of the updates before
				r.saveUpdates(file, update, drawn)
			}
			return err
		}
		drawn += n
		if update+1 == r.Updates || time.Since(file.saved) >= savePeriod {
			r.saveUpdates(file, update+1, drawn)
		}
	}
	return nil
}

// updateOnce makes an update, by windows from number drawn on, and returns how many they are.
func (r *run) updateOnce(t *teaching, learners []*learner, list map[int]attention.Mechanism, update, drawn int) (int, error) {
	for _, l := range learners {
		l.params.ZeroGrad()
	}
	var windows [][]int32
	for tokens := 0; tokens < updateTokens; tokens += len(windows[len(windows)-1]) {
		windows = append(windows, r.drawWindow(drawn+len(windows)))
	}
	for _, ids := range windows {
		if err := t.learn(r, ids, list, 1/float64(len(windows))); err != nil {
			return 0, err
		}
	}
	for _, l := range learners {
		l.adam.Step(l.schedule.Rate(update), 1)
	}
	return len(windows), nil
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
		width := cmp.Or(r.config.Outputs, r.config.Vocab)
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
			for _, x := range made.Row(i) {
				if x-x != 0 {
					return fmt.Errorf("row %d of the last layer is %w", i, attention.ErrNonFinite)
				}
			}
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

// training tells what updates of some numbers did.
type training struct {
	what          string
	choice        Choice
	before, after Quality // on the windows that judge updates
	failure       string  // why they were taken back; "": they are kept
}

// String says what the updates did, by the numbers.
func (t *training) String() string {
	if t.failure != "" {
		return fmt.Sprintf("%s: %v before; they were taken back, since %s", t.what, t.before, t.failure)
	}
	return fmt.Sprintf("%s: %v before, %v after; they are kept", t.what, t.before, t.after)
}

// train updates list, and finds by the windows that judge whether it is better than before.
func (r *run) train(t *training, list map[int]attention.Mechanism) error {
	err := r.update(list, t)
	if err == nil {
		t.after, err = r.compare(list, r.judge, math.MaxInt)
	}
	switch {
	case attention.IsNonFinite(err):
		t.failure = "numbers became infinite"
		return nil
	case err == nil && !(t.after.Loss() < t.before.Loss()):
		t.failure = fmt.Sprintf("it is %v after, which is no better", t.after)
	}
	return err
}

// tune trains the queries of fitted cells: of best, or, if best is not fitted, of the most promising choice
// that is, among the cheaper ones if best meets the wish. If that then meets the wish, it goes on to
// cheaper choices as long as they do. It returns the last that does, otherwise the one that loses least,
// or best if that meets the wish.
func (r *run) tune(list []Trial, best *Trial, allowed *float64, x *Result) (*Trial, error) {
	meets := func(t *Trial) bool { return allowed == nil || t.loss() <= *allowed }
	at := firstToTune(list, best, meets(best))
	if at < 0 {
		return best, nil
	}
	better, err := r.tuned(&list[at], allowed, x)
	switch {
	case err != nil:
		return nil, err
	case !meets(better):
		if best.Fitted || !meets(best) && better.loss() < best.loss() {
			return better, nil
		}
		return best, nil
	case allowed == nil:
		return better, nil
	}
	for i := at - 1; i >= 0; i-- {
		if !list[i].Fitted {
			continue
		}
		cheaper, err := r.tuned(&list[i], allowed, x)
		if err != nil {
			return nil, err
		}
		if !meets(cheaper) {
			break
		}
		better = cheaper
	}
	return better, nil
}

// mostTrained returns how many choices tune trains at most.
func mostTrained(list []Trial, best *Trial, allowed *float64) (n int) {
	at := firstToTune(list, best, allowed == nil || best.loss() <= *allowed)
	for i := 0; i <= at; i++ {
		if i == at || list[i].Fitted && allowed != nil {
			n++
		}
	}
	return n
}

// firstToTune returns the number in list of the choice that is trained first; -1: none can be. meets
// reports whether best meets the wish.
func firstToTune(list []Trial, best *Trial, meets bool) int {
	at := -1
	for i := range list {
		t := &list[i]
		switch {
		case t == best && (t.Fitted || meets):
			if t.Fitted {
				at = i
			}
			return at
		case !t.Fitted || best.Fitted:
		case at < 0 || t.tried && (!list[at].tried || t.loss() < list[at].loss()) || !t.tried && !list[at].tried:
			at = i
		}
	}
	return at
}

// tuned returns the trial of t after updates. Where they do no good in the windows that judge them, or t
// meets the wish without them alone, the queries stay what they were, and tuned returns t.
func (r *run) tuned(t *Trial, allowed *float64, x *Result) (*Trial, error) {
	if !t.tried {
		if err := r.try(t, r.layers); err != nil {
			return nil, err
		}
		x.Trials = append(x.Trials, *t)
	}
	list := map[int]attention.Mechanism{}
	for _, i := range r.layers {
		m, err := r.mechanism(i, t.Choice)
		if err != nil {
			return nil, err
		}
		list[i] = m
	}
	did := &training{what: t.String(), choice: t.Choice}
	r.trained = append(r.trained, did)
	var err error
	if did.before, err = r.compare(list, r.judge, math.MaxInt); err != nil {
		return nil, err
	}
	if err := r.train(did, list); err != nil || did.failure != "" {
		return t, err
	}
	after := map[int][]float32{}
	for i, m := range list {
		p, err := m.Params().Get("tilt")
		if err != nil {
			return nil, err
		}
		after[i] = p.Data
	}
	before := r.tilts[t.place()]
	r.tilts[t.place()], r.untuned[t.place()] = after, before
	y := &Trial{Choice: t.Choice, Cost: t.Cost, Updates: r.Updates}
	err = r.try(y, r.layers)
	switch {
	case attention.IsNonFinite(err):
		did.failure = "numbers became infinite in held-out texts"
	case err != nil:
		return nil, err
	default:
		x.Trials = append(x.Trials, *y)
		if allowed != nil && t.loss() <= *allowed && y.loss() > *allowed {
			did.failure = fmt.Sprintf("only without them the wish is met (%v after, in held-out texts %v)", did.after, y.Quality)
		}
	}
	if did.failure != "" {
		r.tilts[t.place()] = before
		delete(r.untuned, t.place())
		return t, nil
	}
	return y, nil
}

// tuneNear trains the near field of the choice with the far field of the mean, and puts back what it was
// if that is better.
func (r *run) tuneNear(c Choice, near map[int]attention.Mechanism) (*training, error) {
	did := &training{what: "near field with the far field of the mean", choice: c}
	var err error
	if did.before, err = r.compare(near, r.judge, math.MaxInt); err != nil {
		return nil, err
	}
	before := map[*param.Param][]float32{}
	for _, m := range near {
		for _, p := range m.Params().All() {
			before[p] = slices.Clone(p.Data)
		}
		m.(*frozenFar).fade()
	}
	if err := r.train(did, near); err != nil {
		return nil, err
	}
	if did.failure != "" {
		for p, data := range before {
			copy(p.Data, data)
		}
	}
	return did, nil
}

// describeUpdates returns what updates did, in words, with those of the near field beside the choice,
// which is nil if it was not trained.
func (r *run) describeUpdates(x *Result, near *training) string {
	var trained []string
	var own *training
	for _, t := range r.trained {
		trained = append(trained, t.what)
		if t.choice == x.Choice {
			own = t
		}
	}
	switch {
	case len(trained) == 0:
		return fmt.Sprintf("None of the %d updates were made: there is no choice with fitted cells that could be better or cheaper.", r.Updates)
	case own == nil:
		return fmt.Sprintf("%d updates were made of each of these: %s. They did not make one of them the choice, which has no cells to train.", r.Updates, strings.Join(trained, "; "))
	case near == nil:
		return fmt.Sprintf("%d updates of %v are to no purpose, since no layer is exchanged.", r.Updates, own.what)
	}
	s := fmt.Sprintf("%d updates trained the queries of cells on texts of the codebooks (%d windows) towards the outputs of the trained model. Further windows of these texts (%d) decided whether the updates are kept. %s. As many trained the rival, %s.",
		r.Updates, len(r.calibration), len(r.judge.windows), own, near)
	for n, q := range x.Untuned {
		texts, now := "held-out texts", x.Whole
		if n > 0 {
			texts, now = "texts of another kind", *x.Other
		}
		switch {
		case now.Loss() < q.Loss():
			s += fmt.Sprintf(" On %s, the updated cells lose less than before.", texts)
		case now.Loss() > q.Loss():
			s += fmt.Sprintf(" On %s, the updated cells lose more than before.", texts)
		}
	}
	return s
}
