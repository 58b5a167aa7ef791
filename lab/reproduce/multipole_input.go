package reproduce

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/tensor"
)

var multipoleOfInput = Row{
	Name:   "multipole-input",
	Doc:    "attention alone over clusters of its own keys, on heads of a trained encoder: error of rows, share of exact pairs and processor time beside softmax, and of a step over a cache of keys",
	Source: "multipole with centres=input, a mechanism of this project",
	Claim:  "no table of this setting",
	pieces: inputPieces, outcome: inputOutcome,
}

// Layers and heads that are measured. Heads of width 64 are two neighbours of width 32 side by side.
var (
	inputLayers = []int{0, 3, 5}
	inputHeads  = []int{0, 8}
)

// inputTokens are what the trained model reads at once, with stretched positions. Longer sequences are
// the keys of several texts one after another.
const inputTokens = 8192

type inputConfig struct {
	Model  string `json:"model"`
	Tokens int    `json:"tokens"`
	Width  int    `json:"width"` // of heads
	Causal bool   `json:"causal"`
	Steps  int    `json:"steps"` // of a session behind the tokens; 0: whole calls
	Turns  int    `json:"turns"`
	Tol    string `json:"tol"`
	Layers []int  `json:"layers"`
	Heads  []int  `json:"heads"`
}

func (c *inputConfig) name() string {
	name := fmt.Sprintf("n%d-d%d-tol-%s", c.Tokens, c.Width, strings.TrimPrefix(c.Tol, "0."))
	switch {
	case c.Steps > 0:
		name += "-steps"
	case c.Causal:
		name += "-causal"
	}
	return name
}

// inputHead is the result of one head.
type inputHead struct {
	Layer   int     `json:"layer"`
	Head    int     `json:"head"`
	Softmax float64 `json:"softmax_s"` // processor time, the least of the turns
	Seconds float64 `json:"seconds"`
	Error   float64 `json:"error"` // root mean square over that of the rows of softmax
	Row     float64 `json:"row"`   // mean of the relative errors of rows
	Exact   float64 `json:"exact"` // share of pairs; of steps 0
}

func inputConfigs(o *Options) (list []*inputConfig) {
	for _, width := range []int{32, 64} {
		for _, n := range []int{inputTokens, 4 * inputTokens} {
			for _, causal := range []bool{false, true} {
				for _, tol := range pick(o.Budget, []string{"0.05", "0.035"}, []string{"0.05", "0.035", "0.03", "0.02", "0.1"}, []string{"0.05", "0.035", "0.03", "0.01", "0.02", "0.025", "0.1"}) {
					list = append(list, &inputConfig{Model: miniLM, Tokens: n, Width: width, Causal: causal, Turns: pick(o.Budget, 2, 5, 10), Tol: tol, Layers: inputLayers, Heads: inputHeads})
				}
			}
		}
		for _, tol := range []string{"0.05", "0.035"} {
			list = append(list, &inputConfig{Model: miniLM, Tokens: 4 * inputTokens, Width: width, Causal: true, Steps: 64, Turns: pick(o.Budget, 2, 5, 10), Tol: tol, Layers: inputLayers, Heads: inputHeads})
		}
	}
	return list
}

func inputPieces(o *Options) (list []Piece, err error) {
	shared := &inputShared{exchangeShared: exchangeShared{o: o}}
	for _, c := range inputConfigs(o) {
		n := float64(c.Tokens)
		flops := 8 * n * inputTokens * 12 * 64 // of the trained model
		heads := float64(len(c.Layers) * len(c.Heads) * c.Turns)
		if c.Steps == 0 {
			flops += heads * 6 * n * n * float64(c.Width)
		} else {
			flops += heads * n * 2e4
		}
		list = append(list, Piece{Name: c.name(), Config: c, FLOPs: flops, run: func(w *Work) (any, error) { return c.run(w, shared) }})
	}
	return list, nil
}

// inputShared holds heads of the trained model at hand.
type inputShared struct {
	exchangeShared
	tokens int // 0: none
	calls  map[int]*attention.Call
}

// load reads the queries, keys and values of layers: of meetings, and of a novel in turns.
func (x *inputShared) load(w *Work, c *inputConfig) error {
	if x.tokens == c.Tokens {
		return nil
	}
	s, err := x.open(c.Model, inputTokens)
	if err != nil {
		return err
	}
	var windows [][]int32
	for _, kind := range []string{novel, meetings} {
		list, err := x.texts(kind)
		if err != nil {
			return err
		}
		text := list[0]
		if kind == novel {
			text = strings.Join(list, "")
		}
		for _, t := range append([]string{text}, list[1:]...) {
			cut, err := x.cut(s, t, inputTokens)
			if err != nil {
				return err
			}
			windows = append(windows, slices.DeleteFunc(cut, func(w []int32) bool { return len(w) < inputTokens })...)
			if need := max(c.Tokens/inputTokens/2, 1); len(windows) >= need && (kind == novel || len(windows) >= 2*need) {
				windows = windows[:min(len(windows), need*map[string]int{novel: 1, meetings: 2}[kind])]
				break
			}
		}
	}
	if len(windows)*inputTokens < c.Tokens {
		return fmt.Errorf("%d windows of %d tokens: %w", len(windows), inputTokens, task.ErrNoData)
	}
	calls := map[int]*attention.Call{}
	for i, ids := range windows[:c.Tokens/inputTokens] {
		layer := 0
		err := x.opened.WatchAttention(w.Ctx, ids, func(_ string, _ attention.Mechanism, call *attention.Call) error {
			if slices.Contains(c.Layers, layer) {
				if calls[layer] == nil {
					of := func(h tensor.Heads) tensor.Heads {
						return tensor.NewHeads(1, h.H, c.Tokens, h.D)
					}
					calls[layer] = &attention.Call{Q: of(call.Q), K: of(call.K), V: of(call.V)}
				}
				to := calls[layer]
				for head := range call.Q.H {
					for r := range call.Q.N {
						copy(to.Q.Head(0, head).Row(i*inputTokens+r), call.Q.Head(0, head).Row(r))
						copy(to.K.Head(0, head).Row(i*inputTokens+r), call.K.Head(0, head).Row(r))
						copy(to.V.Head(0, head).Row(i*inputTokens+r), call.V.Head(0, head).Row(r))
					}
				}
			}
			layer++
			return nil
		})
		if err != nil {
			return err
		}
		w.reportShare(0.4 * float64(i+1) / float64(c.Tokens/inputTokens))
	}
	x.tokens, x.calls = c.Tokens, calls
	return nil
}

// side returns heads of the wanted width: a head and those after it, side by side.
func side(h tensor.Heads, head, width int) tensor.Heads {
	y := tensor.NewHeads(1, 1, h.N, width)
	for i := range h.N {
		for k := 0; k < width; k += h.D {
			copy(y.Head(0, 0).Row(i)[k:], h.Head(0, head+k/h.D).Row(i))
		}
	}
	return y
}

func (c *inputConfig) run(w *Work, x *inputShared) (list []inputHead, err error) {
	if err := x.load(w, c); err != nil {
		return nil, err
	}
	softmax, err := mechanism.New("softmax", mechanism.Options{})
	if err != nil {
		return nil, err
	}
	of, err := mechanism.New("multipole", mechanism.Options{Set: map[string]string{"centres": "input", "tol": c.Tol}})
	if err != nil {
		return nil, err
	}
	threads := par.Threads()
	par.SetThreads(1)
	defer par.SetThreads(threads)
	for _, layer := range c.Layers {
		for _, head := range c.Heads {
			of32 := x.calls[layer]
			call := &attention.Call{Q: side(of32.Q, head, c.Width), K: side(of32.K, head, c.Width), V: side(of32.V, head, c.Width), Causal: c.Causal}
			r := inputHead{Layer: layer, Head: head}
			measure := r.measureCalls
			if c.Steps > 0 {
				measure = r.measureSteps
			}
			if err := measure(c, softmax, of, call); err != nil {
				return nil, err
			}
			list = append(list, r)
			w.reportShare(0.4 + 0.6*float64(len(list))/float64(len(c.Layers)*len(c.Heads)))
			if err := w.Ctx.Err(); err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}

// measureCalls measures whole calls in turns.
func (r *inputHead) measureCalls(c *inputConfig, softmax, of attention.Mechanism, call *attention.Call) error {
	want, got := tensor.NewHeads(1, 1, c.Tokens, c.Width), tensor.NewHeads(1, 1, c.Tokens, c.Width)
	for range c.Turns {
		for m, x := range map[attention.Mechanism]struct {
			out  tensor.Heads
			time *float64
		}{softmax: {want, &r.Softmax}, of: {got, &r.Seconds}} {
			seconds, err := clocked(func() error { return m.Forward(x.out, call, nil) })
			if err != nil {
				return err
			}
			keepLeast(x.time, seconds)
		}
	}
	keep := new(attention.Saved)
	if err := of.Forward(got, call, keep); err != nil {
		return err
	}
	r.Exact = keep.ExactShare
	r.compare(want, got)
	return nil
}

// measureSteps measures steps of sessions in turns, behind the other tokens.
func (r *inputHead) measureSteps(c *inputConfig, softmax, of attention.Mechanism, call *attention.Call) error {
	outs := [2]tensor.Heads{tensor.NewHeads(1, 1, c.Steps, c.Width), tensor.NewHeads(1, 1, c.Steps, c.Width)}
	past := c.Tokens - c.Steps
	piece := func(i0, i1 int) *attention.Call {
		return &attention.Call{Q: call.Q.Tokens(i0, i1), K: call.K.Tokens(i0, i1), V: call.V.Tokens(i0, i1), Causal: true}
	}
	var first [2]attention.State
	for k, m := range []attention.Mechanism{softmax, of} {
		s, err := m.NewState(call.Shape())
		if err != nil {
			return err
		}
		if err := s.Absorb(piece(0, past)); err != nil {
			return err
		}
		first[k] = s
	}
	for turn := range c.Turns + 1 {
		for k, time := range []*float64{&r.Softmax, &r.Seconds} {
			s := first[k].Clone()
			// The first step behind a clone makes its index.
			if err := s.Step(outs[k].Tokens(0, 1), piece(past, past+1)); err != nil {
				return err
			}
			seconds, err := clocked(func() error {
				for i := 1; i < c.Steps; i++ {
					if err := s.Step(outs[k].Tokens(i, i+1), piece(past+i, past+i+1)); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			if turn > 0 { // after one to warm up
				keepLeast(time, seconds/float64(c.Steps-1))
			}
		}
	}
	r.compare(outs[0], outs[1])
	return nil
}

// keepLeast makes x the least of the seconds so far.
func keepLeast(x *float64, seconds float64) {
	if *x == 0 || seconds < *x {
		*x = seconds
	}
}

// clocked returns the processor time of f.
func clocked(f func() error) (seconds float64, err error) {
	start := processorSeconds()
	err = f()
	return processorSeconds() - start, err
}

// compare sets the errors of rows.
func (r *inputHead) compare(want, got tensor.Heads) {
	var off, size float64
	n := want.N
	for i := range n {
		var a, b float64
		for e, y := range want.Head(0, 0).Row(i) {
			d := float64(y - got.Head(0, 0).Row(i)[e])
			a += d * d
			b += float64(y) * float64(y)
		}
		off, size = off+a, size+b
		r.Row += math.Sqrt(a/b) / float64(n)
	}
	r.Error = math.Sqrt(off / size)
}

// inputRequired are the speeds over softmax that are required of heads of width 64.
func (c *inputConfig) required() float64 {
	switch {
	case c.Steps > 0:
		return 2
	case c.Causal && c.Tokens == inputTokens:
		return 2.5
	case c.Causal:
		return 6
	case c.Tokens == inputTokens:
		return 4
	}
	return 10
}

// inputError is the largest error that counts.
const inputError = 0.05

// inputFinding is what was found for a form with one tol.
type inputFinding struct {
	c            *inputConfig
	form         string
	speed, error float64
}

// isBetter reports whether x counts rather than y.
func (x *inputFinding) isBetter(y *inputFinding) bool {
	if x.error <= inputError && y.error <= inputError {
		return x.speed > y.speed
	}
	return x.error < y.error
}

func inputOutcome(o *Options, r *Results) (*Outcome, error) {
	out := new(Outcome)
	all := report.Table{
		Title: "Attention over clusters of its own keys, beside softmax",
		Head:  []string{"tokens", "width", "form", "tol", "error", "mean of rows", "exact pairs, %", "softmax, ms", "times as fast", "required"},
		Note: "all-MiniLM-L6-v2 with stretched positions on a novel and meetings of 8192 tokens; 32768 tokens are the keys of four such texts one after another. Heads of width 64 are two heads of " +
			"width 32 side by side, since the model has none. Processor time of one thread, the least of turns with softmax, summed over heads. Error: |o - o'|/|o'| of all output rows o together, with o' those of softmax; " +
			"mean of rows: this error of each row, averaged. Both are averaged over heads. Of the tolerances of a form the one counts that is fastest with an error of 0.05 at most. Steps are the next tokens of a session, on the same heads with a causal past.",
	}
	each := report.Table{Title: "By head", Head: []string{"tokens", "width", "form", "tol", "layer", "head", "error", "exact pairs, %", "times as fast"}}
	var counted []inputFinding
	for _, c := range inputConfigs(o) {
		list, found, err := get[[]inputHead](r, c.name())
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		form := "unmasked"
		switch {
		case c.Steps > 0:
			form = "steps"
		case c.Causal:
			form = "causal"
		}
		var sum inputHead
		n := float64(len(list))
		for _, h := range list {
			sum.Softmax, sum.Seconds = sum.Softmax+h.Softmax, sum.Seconds+h.Seconds
			sum.Error, sum.Row, sum.Exact = sum.Error+h.Error/n, sum.Row+h.Row/n, sum.Exact+h.Exact/n
			addRow(&each, fmt.Sprint(c.Tokens), fmt.Sprint(c.Width), form, c.Tol, fmt.Sprint(h.Layer), fmt.Sprint(h.Head), digits(h.Error), digits(100*h.Exact), digits(h.Softmax/h.Seconds))
		}
		speed := sum.Softmax / sum.Seconds
		addRow(&all, fmt.Sprint(c.Tokens), fmt.Sprint(c.Width), form, c.Tol, digits(sum.Error), digits(sum.Row), digits(100*sum.Exact), digits(1e3*sum.Softmax/n), digits(speed), digits(c.required()))
		if c.Width != 64 {
			continue
		}
		// Of each form the fastest counts whose error is small enough, or else the one of the least error.
		now := inputFinding{c, form, speed, sum.Error}
		at := slices.IndexFunc(counted, func(x inputFinding) bool { return x.form == form && x.c.Tokens == c.Tokens })
		switch {
		case at < 0:
			counted = append(counted, now)
		case now.isBetter(&counted[at]):
			counted[at] = now
		}
	}
	for _, x := range counted {
		verdict := "not reached"
		if x.speed >= x.c.required() && x.error <= inputError {
			verdict = "reached"
		}
		out.find("%s, %d tokens, tol %s: %s times as fast as softmax with an error of %s; %s times with 0.05 at most required: %s.", x.form, x.c.Tokens, x.c.Tol, digits(x.speed), digits(x.error), digits(x.c.required()), verdict)
	}
	out.Tables = append(out.Tables, all, each)
	return out, nil
}
