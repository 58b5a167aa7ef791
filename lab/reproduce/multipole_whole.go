package reproduce

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

var multipoleWhole = Row{
	Name:   "multipole-whole",
	Doc:    "whole models with multipole instead of softmax: passes of ModernBERT-base's shape, and steps of SmolLM-135M's shape after 32768 tokens, beside the same models with softmax",
	Source: "a comparison of this project; the shapes are those of Warner et al. 2024, arXiv 2412.13663, and of SmolLM-135M",
	Claim:  "no table of this setting",
	pieces: wholePieces, outcome: wholeOutcome,
}

// Shapes of whole models. Weights are drawn; queries, keys and values of exchanged layers are those of a
// trained encoder.
const (
	wholePass   = "modernbert-base"
	wholeDecode = "smollm-135m"
)

type wholeConfig struct {
	Shape  string   `json:"shape"`
	Layers int      `json:"layers"`
	Tokens int      `json:"tokens"` // of a pass, or of the context of a step
	Turns  int      `json:"turns"`
	Steps  int      `json:"steps,omitempty"` // of a turn
	Data   string   `json:"data"`            // the encoder whose queries, keys and values the layers have
	From   []int    `json:"from"`            // its layers
	Set    []method `json:"methods"`
}

func (c *wholeConfig) name() string {
	name := "pass"
	if c.Shape == wholeDecode {
		name = "decode"
	}
	return fmt.Sprintf("%s-%d", name, c.Tokens)
}

// wholeMethods are compared; softmax is the first. Of steps there is one tolerance, since each session of
// clusters of the input takes gigabytes.
func wholeMethods(shape string) []method {
	input := func(tol string) method {
		return method{Label: "multipole, clusters of the input, tol " + tol, Name: "multipole", Set: map[string]string{"centres": "input", "tol": tol}}
	}
	list := []method{softmax, input("0.05"), multipoleOf(256, 0, swapBlock, swapWindow), multipoleOf(1024, 0, swapBlock, swapWindow)}
	if shape == wholePass {
		list = slices.Insert(list, 2, input("0.3"))
	}
	return list
}

func wholeConfigs(o *Options) (list []*wholeConfig) {
	add := func(shape string, layers, tokens, turns, steps int) {
		list = append(list, &wholeConfig{Shape: shape, Layers: layers, Tokens: tokens, Turns: turns, Steps: steps, Data: miniLM, From: inputLayers, Set: wholeMethods(shape)})
	}
	add(wholeDecode, pick(o.Budget, 3, 30, 30), 4*inputTokens, pick(o.Budget, 3, 7, 7), 8)
	add(wholePass, pick(o.Budget, 3, 22, 22), inputTokens, pick(o.Budget, 1, 5, 9), 0)
	if o.Budget != Quick {
		add(wholePass, 22, 4*inputTokens, pick(o.Budget, 1, 3, 5), 0)
	}
	return list
}

func wholePieces(o *Options) (list []Piece, err error) {
	shared := &inputShared{exchangeShared: exchangeShared{o: o}}
	for _, c := range wholeConfigs(o) {
		n, layers := float64(c.Tokens), float64(c.Layers)
		flops := 8 * n * inputTokens * 12 * 64 // of the encoder
		if c.Steps == 0 {
			flops += float64(c.Turns+1) * layers * (float64(len(c.Set))*n*2*5e6 + 1.5*n*n*4*768/3)
		} else {
			flops += float64(len(c.Set)*c.Turns*c.Steps)*135e6*4 + layers*n*1e6
		}
		list = append(list, Piece{Name: c.name(), Config: c, FLOPs: flops, run: func(w *Work) (any, error) { return c.run(w, shared) }})
	}
	return list, nil
}

// wholeTime holds the measurements of one method.
type wholeTime struct {
	Label   string  `json:"label"`
	Part    string  `json:"part,omitempty"` // of the steps
	Seconds float64 `json:"seconds"`        // processor time of a pass or a step, the median of turns
	Bytes   float64 `json:"bytes,omitempty"`
	Exact   float64 `json:"exact"` // share of the pairs of exchanged layers that are computed one by one
	Error   float64 `json:"error"` // mean relative error of rows of exchanged layers beside softmax
}

// config returns the shape of a model.
func (c *wholeConfig) config() model.Config {
	if c.Shape == wholeDecode {
		return model.Config{
			Kind: model.Decoder, Vocab: 49152, Context: 2048, Layers: c.Layers, Width: 576, Heads: 9, KVHeads: 3, Hidden: 1536,
			Norm: model.RMSNorm, Activation: model.SwiGLU, Positions: model.Rotary, Mechanism: "softmax", Tied: true,
		}
	}
	x := model.Config{
		Kind: model.Encoder, Vocab: 1024, Outputs: 1, Pool: model.PoolMean, Context: c.Tokens, Layers: c.Layers, Width: 768, Heads: 12, Hidden: 1152,
		Activation: "geglu", Positions: model.Rotary, Mechanism: "softmax",
	}
	for i := range c.Layers {
		span := 0
		if i%3 != 0 {
			span = 65 // 64 tokens on each side
		}
		x.LayerWindows = append(x.LayerWindows, span)
	}
	return x
}

// wide is what layers of the trained encoder have, with heads of 64 numbers: two of 32 side by side.
type wide map[int]*attention.Call

// widen returns heads of the layers: 2h and 2h+1 together, then 2h+1 and 2h+2.
func widen(calls map[int]*attention.Call, layers []int) wide {
	all := wide{}
	for _, layer := range layers {
		of := calls[layer]
		y := &attention.Call{}
		for _, x := range []struct{ from, to *tensor.Heads }{{&of.Q, &y.Q}, {&of.K, &y.K}, {&of.V, &y.V}} {
			h, n, d := x.from.H, x.from.N, x.from.D
			*x.to = tensor.NewHeads(1, h, n, 2*d)
			for to := range h {
				first := 2 * to % h
				if 2*to >= h {
					first++
				}
				for i := range n {
					row := x.to.Head(0, to).Row(i)
					copy(row, x.from.Head(0, first).Row(i))
					copy(row[d:], x.from.Head(0, (first+1)%h).Row(i))
				}
			}
		}
		all[layer] = y
	}
	return all
}

// player is a mechanism whose calls have queries, keys and values of a trained model in the place of
// their own. They are rotated, if at all.
type player struct {
	attention.Mechanism
	of    *attention.Call
	first int // key head of a state
	past  int // tokens of new states
}

func (p *player) Forward(out tensor.Heads, c *attention.Call, keep *attention.Saved) error {
	y := attention.Call{Q: p.of.Q, K: p.of.K, V: p.of.V, Causal: c.Causal}
	return p.Mechanism.Forward(out, &y, keep)
}

// NewState returns a state of past tokens.
func (p *player) NewState(s attention.Shape) (attention.State, error) {
	state, err := p.Mechanism.NewState(s)
	if err != nil {
		return nil, err
	}
	x := &playedState{State: state, player: p, at: p.past, out: make([]float32, s.H*s.Dv),
		call: attention.Call{Q: tensor.NewHeads(1, s.H, 1, s.D), K: tensor.NewHeads(1, s.Hkv, 1, s.D), V: tensor.NewHeads(1, s.Hkv, 1, s.Dv), Causal: true}}
	return x, state.Absorb(p.tokens(s.H, s.Hkv, 0, p.past))
}

// keyHead returns the heads of the trained model that key head h has.
func (p *player) keyHead(h int) int { return (p.first + h) % p.of.K.H }

// groupStep is how many tokens before a key head's own query the queries of further heads of its group
// are.
const groupStep = 997

// tokens returns a call of the tokens lo ≤ t < hi. Query heads that share a key head have the queries of
// other tokens.
func (p *player) tokens(heads, keyHeads, lo, hi int) *attention.Call {
	n := hi - lo
	c := &attention.Call{Q: tensor.NewHeads(1, heads, n, p.of.Q.D), K: tensor.NewHeads(1, keyHeads, n, p.of.K.D), V: tensor.NewHeads(1, keyHeads, n, p.of.V.D), Causal: true}
	p.fill(c, lo)
	return c
}

// fill sets a call to tokens from lo on.
func (p *player) fill(c *attention.Call, lo int) {
	all, group := p.of.K.N, c.Q.H/c.K.H
	for h := range c.K.H {
		from := p.keyHead(h)
		for i := range c.K.N {
			t := (lo + i) % all
			copy(c.K.Head(0, h).Row(i), p.of.K.Head(0, from).Row(t))
			copy(c.V.Head(0, h).Row(i), p.of.V.Head(0, from).Row(t))
			for g := range group {
				copy(c.Q.Head(0, h*group+g).Row(i), p.of.Q.Head(0, from).Row((t+all-g*groupStep%all)%all))
			}
		}
	}
}

// playedState is a state that takes the tokens of the trained model in turn.
type playedState struct {
	attention.State
	player *player
	at     int
	call   attention.Call
	out    []float32 // of the last step [heads,Dv]
}

func (s *playedState) Step(out tensor.Heads, _ *attention.Call) error {
	s.player.fill(&s.call, s.at)
	s.at++
	if err := s.State.Step(out, &s.call); err != nil {
		return err
	}
	for h := range out.H {
		copy(s.out[h*out.D:], out.Head(0, h).Row(0))
	}
	return nil
}

func (c *wholeConfig) run(w *Work, shared *inputShared) (any, error) {
	if processorSeconds() == 0 {
		return nil, errors.New("the processor time of a process is not known on this system")
	}
	load := &inputConfig{Model: c.Data, Tokens: c.Tokens, Layers: c.From}
	if err := shared.load(w, load); err != nil {
		return nil, err
	}
	data := widen(shared.calls, c.From)
	threads := par.Threads()
	par.SetThreads(1)
	defer par.SetThreads(threads)
	m, err := model.New(c.config(), rng.New(1))
	if err != nil {
		return nil, err
	}
	if c.Steps > 0 {
		return c.decode(w, m, data)
	}
	m.Freeze()
	return c.pass(w, m, data)
}

// mechanism returns a method for heads of the shape, whose codebook are keys that lie evenly apart.
func (c *wholeConfig) mechanism(m method, p *player, keyHeads int) (attention.Mechanism, error) {
	x, err := mechanism.New(m.Name, mechanism.Options{Order: m.Order, Heads: keyHeads, KeyHeads: keyHeads, Width: p.of.K.D, Set: m.Set})
	if err != nil {
		return nil, err
	}
	if book, err := x.Constants().Get("codebook"); err == nil {
		cells, d := book.Shape[1], book.Shape[2]
		for h := range keyHeads {
			for k := range cells {
				copy(book.Data[(h*cells+k)*d:][:d], p.of.K.Head(0, p.keyHead(h)).Row(1+k*(p.of.K.N-2)/cells))
			}
		}
	}
	return x, nil
}

// players returns the mechanism of each exchanged layer.
func (c *wholeConfig) players(m method, data wide, keyHeads int) (map[string]*player, error) {
	list := map[string]*player{}
	for i := range c.Layers {
		if c.Steps == 0 && i%3 != 0 {
			continue
		}
		n := len(list)
		p := &player{of: data[c.From[n%len(c.From)]]}
		if c.Steps > 0 {
			p.first, p.past = n/len(c.From)*keyHeads%p.of.K.H, c.Tokens-beforeEnd
		}
		var err error
		if p.Mechanism, err = c.mechanism(m, p, keyHeads); err != nil {
			return nil, err
		}
		list[fmt.Sprintf("layers.%d.attn", i)] = p
	}
	return list, nil
}

// play runs f while the layers of m have the mechanisms of list.
func play(m *model.Model, list map[string]*player, f func() error) error {
	defer model.WrapMechanisms(m, func(name string, of attention.Mechanism) attention.Mechanism {
		if p := list[name]; p != nil {
			return p
		}
		return of
	})()
	return f()
}

// pass measures whole passes in turns.
func (c *wholeConfig) pass(w *Work, m *model.Model, data wide) ([]wholeTime, error) {
	tokens := make([]int32, c.Tokens)
	for i := range tokens {
		tokens[i] = int32(i * 7919 % m.Config().Vocab)
	}
	batch, dst := &model.Batch{B: 1, N: c.Tokens, Tokens: tokens}, make([]float32, 1)
	list, times := make([]wholeTime, len(c.Set)), make([][]float64, len(c.Set))
	for turn := range c.Turns {
		for i, x := range c.Set {
			layers, err := c.players(x, data, 12)
			if err != nil {
				return nil, err
			}
			err = play(m, layers, func() error {
				seconds, err := clocked(func() error { return w.do(func() error { return m.Logits(w.Ctx, batch, dst) }) })
				times[i] = append(times[i], seconds)
				return err
			})
			if err != nil {
				return nil, err
			}
			w.reportShare(0.2 + 0.6*float64(turn*len(c.Set)+i+1)/float64(c.Turns*len(c.Set)))
		}
	}
	for i, x := range c.Set {
		list[i] = wholeTime{Label: x.Label, Seconds: median(times[i])}
	}
	return list, c.compare(w, list, data)
}

// compare sets the share of exact pairs and the error of rows of the layers of a pass.
func (c *wholeConfig) compare(w *Work, list []wholeTime, data wide) error {
	for n, layer := range c.From {
		call := data[layer]
		want, got := tensor.NewHeads(1, call.Q.H, call.Q.N, call.V.D), tensor.NewHeads(1, call.Q.H, call.Q.N, call.V.D)
		for i, x := range c.Set {
			m, err := c.mechanism(x, &player{of: call}, call.K.H)
			if err != nil {
				return err
			}
			out := got
			if i == 0 {
				out = want
			}
			keep := new(attention.Saved)
			if err := w.do(func() error { return m.Forward(out, call, keep) }); err != nil {
				return err
			}
			switch _, has := x.Set["cells"]; {
			case i == 0:
				keep.ExactShare = 1
			case has:
				keep.ExactShare = float64(swapBlock+2*swapWindow+2) / float64(c.Tokens)
			}
			list[i].Exact += keep.ExactShare / float64(len(c.From))
			list[i].Error += rowError(want.Data, out.Data, out.D) / float64(len(c.From))
		}
		w.reportShare(0.8 + 0.2*float64(n+1)/float64(len(c.From)))
	}
	return nil
}

// rowError returns the mean relative error of rows of d numbers.
func rowError(want, got []float32, d int) (sum float64) {
	for at := 0; at < len(want); at += d {
		var a, b float64
		for e := range d {
			x := float64(want[at+e])
			y := float64(got[at+e]) - x
			a, b = a+y*y, b+x*x
		}
		sum += math.Sqrt(a / b)
	}
	return sum * float64(d) / float64(len(want))
}

// The measured steps lie before and at the end of a span, in the next span, in which blocks of
// centres=input are joined, and after it.
const (
	beforeEnd = 64 // tokens before the end at which states begin
	wholeSpan = 512

	partBefore, partEnd, partSlowest, partBehind = "before the end of a span", "at the end of a span", "the slowest of the next span", "after the next span"
)

// decode measures steps in turns. Sessions begin with the states of past tokens.
func (c *wholeConfig) decode(w *Work, m *model.Model, data wide) (list []wholeTime, err error) {
	const keyHeads = 3
	type session struct {
		*model.Session
		layers map[string]*player
		states []*playedState
		tokens int // of its states
	}
	all := make([]*session, len(c.Set))
	for i, x := range c.Set {
		s := &session{tokens: c.Tokens - beforeEnd}
		if s.layers, err = c.players(x, data, keyHeads); err != nil {
			return nil, err
		}
		restore := model.WrapMechanisms(m, func(name string, _ attention.Mechanism) attention.Mechanism {
			return &watchedPlayer{s.layers[name], func(x *playedState) { s.states = append(s.states, x) }}
		})
		s.Session, err = m.NewSession(1)
		restore()
		if err != nil {
			return nil, err
		}
		all[i] = s
		w.reportShare(0.2 + 0.3*float64(i+1)/float64(len(c.Set)))
	}
	step := func(s *session, n int) error {
		for range n {
			if _, err := s.Step(w.Ctx, []int32{int32(s.tokens * 7919 % m.Config().Vocab)}, 1); err != nil {
				return err
			}
			s.tokens++
		}
		return nil
	}
	for _, s := range all { // brings memory, and makes the index
		if err := step(s, 1); err != nil {
			return nil, err
		}
	}
	parts := []string{partBefore, partEnd, partSlowest, partBehind}
	for k, part := range parts {
		turns, steps := c.Turns, c.Steps
		switch part {
		case partEnd:
			turns, steps = 1, 1
			for _, s := range all {
				if err := step(s, c.Tokens-s.tokens); err != nil {
					return nil, err
				}
			}
		case partSlowest:
			turns, steps = wholeSpan, 1
		}
		times := make([][]float64, len(all))
		for range turns {
			for i, s := range all {
				seconds, err := clocked(func() error { return step(s, steps) })
				if err != nil {
					return nil, err
				}
				times[i] = append(times[i], seconds/float64(steps))
			}
		}
		for i, s := range all {
			x := wholeTime{Label: c.Set[i].Label, Part: part, Seconds: median(times[i])}
			if part == partSlowest {
				x.Seconds = slices.Max(times[i])
			}
			for l := range s.states {
				x.Error += rowError(all[0].states[l].out, s.states[l].out, s.states[l].call.V.D) / float64(len(s.states))
			}
			if x.Exact, x.Bytes, err = c.reads(w, c.Set[i], s.layers, s.tokens, steps); err != nil {
				return nil, err
			}
			list = append(list, x)
		}
		w.reportShare(0.5 + 0.5*float64(k+1)/float64(len(parts)))
	}
	return list, nil
}

// watchedPlayer tells of the states that it makes.
type watchedPlayer struct {
	*player
	made func(*playedState)
}

func (p *watchedPlayer) NewState(s attention.Shape) (attention.State, error) {
	x, err := p.player.NewState(s)
	if err != nil {
		return nil, err
	}
	p.made(x.(*playedState))
	return x, nil
}

// reads returns the share of exact pairs in the last steps of sessions of n tokens, and the bytes of keys,
// values and their sums that the last step reads. Of keys that the queries of a group choose, each counts
// for itself.
func (c *wholeConfig) reads(w *Work, m method, layers map[string]*player, n, steps int) (exact, bytes float64, err error) {
	const heads, keyHeads, d = 9, 3, 64
	near := float64(n) // of softmax
	sums := 0.0
	if k, err := strconv.Atoi(m.Set["cells"]); err == nil {
		near = min(near, swapBlock+swapWindow+1)
		sums = float64(k * (1 + 2*d))
		exact = near / float64(n)
	} else if m.Set["centres"] == "input" {
		count := 0
		for i := range min(len(c.From), c.Layers) {
			p := layers[fmt.Sprintf("layers.%d.attn", i)]
			call := p.tokens(heads, keyHeads, 0, n)
			call.Q = call.Q.Tokens(n-steps, n)
			keep := new(attention.Saved)
			if err := w.do(func() error { return p.Mechanism.Forward(tensor.NewHeads(1, heads, steps, d), call, keep) }); err != nil {
				return 0, 0, err
			}
			exact += keep.ExactShare
			count++
		}
		exact /= float64(count)
		var open float64
		sums, open = farSums(n, d)
		near = open + heads/keyHeads*max(exact*float64(n)-open, 0)
	} else {
		exact = 1
	}
	return exact, 4 * keyHeads * float64(c.Layers) * (sums + near*2*d), nil
}

// farSums returns how many numbers the far field of centres=input holds after n tokens of width d, with
// the default settings (docs/mechanisms.md), and how many keys are near to the last query without its
// choice.
func farSums(n, d int) (numbers, open float64) {
	const span, radix, leastKeys, groupKeys, mostGroups = wholeSpan, 4, 16, 512, 16
	closed := (n - 1) / span
	clusters, groups := 0, 0
	add := func(blocks, length int) {
		size := max(int(math.Sqrt(float64(length)/8)), leastKeys)
		count := (length + size - 1) / size
		clusters += blocks * count
		groups += blocks * min(int(math.Round(math.Sqrt(float64(count)))), max(length/groupKeys, 1), mostGroups)
	}
	if closed > 0 { // the last is by itself
		add(1, span)
		closed--
	}
	for length := span; closed > 0; closed, length = closed/radix, length*radix {
		add(closed%radix, length)
	}
	// Means, variances, values, shares, numbers of keys, and reaches of clusters; spreads and sums of groups.
	numbers = float64(clusters*(3*d+groups+2) + groups*d*(d+1))
	return numbers, float64(n-(n-1)/span*span) + 1
}

// wholeRequired are the times over softmax that are required, and decodeBytes the share of the bytes.
var wholeRequired = map[string]float64{"pass-8192": 1.4, "pass-32768": 2.5, "decode-32768": 2}

const decodeBytes = 0.2

func wholeOutcome(o *Options, r *Results) (*Outcome, error) {
	out := new(Outcome)
	passes := report.Table{Title: "Passes of ModernBERT-base's shape", Head: []string{"layers", "tokens", "attention", "processor s", "times as fast", "required", "exact pairs, %", "relative error"},
		Note: "Width 768. Each third layer sees all keys, and its attention is exchanged; the others have windows of 64 tokens on each side. Exact pairs: the share of pairs of query and key whose weights are computed one by one. Relative error: |o - o'|/|o'| of an output row o, with o' the row of softmax, averaged over rows and exchanged layers."}
	steps := report.Table{Title: "Steps of SmolLM-135M's shape after 32768 tokens", Head: []string{"layers", "step", "attention", "ms of a token", "times as fast", "MB read", "of softmax, %", "exact pairs, %", "relative error"},
		Note: "Width 576, 9 heads, 3 key heads, weights of 4 bytes. MB read: keys, values and their sums, counted and not measured; a cluster that several queries of a group choose counts for each. At the end of a span, once in 512 tokens, its keys are clustered. In the span after 32768 tokens nine blocks and another span become one, in each head at another step. MB read does not contain this work. Exact pairs and relative error are as above."}
	for _, c := range wholeConfigs(o) {
		list, found, err := get[[]wholeTime](r, c.name())
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		base := map[string]wholeTime{}
		for _, x := range list {
			if x.Label == softmax.Label {
				base[x.Part] = x
			}
		}
		required := wholeRequired[c.name()]
		for _, x := range list {
			of := base[x.Part]
			speed := of.Seconds / x.Seconds
			if c.Steps == 0 {
				addRow(&passes, fmt.Sprint(c.Layers), fmt.Sprint(c.Tokens), x.Label, digits(x.Seconds), digits(speed), digits(required), digits(100*x.Exact), digits(x.Error))
			} else {
				addRow(&steps, fmt.Sprint(c.Layers), x.Part, x.Label, digits(1e3*x.Seconds), digits(speed), digits(x.Bytes/1e6), digits(100*x.Bytes/of.Bytes), digits(100*x.Exact), digits(x.Error))
			}
			if x.Label == softmax.Label || x.Part == partEnd || x.Part == partSlowest {
				continue
			}
			verdict := "reached"
			if c.Layers < 22 {
				verdict = fmt.Sprintf("%d layers are too few to judge", c.Layers)
			} else if speed < required || c.Steps > 0 && x.Bytes > decodeBytes*of.Bytes {
				verdict = "not reached"
			}
			if c.Steps == 0 {
				out.find("A pass of %d tokens, %s: %s times as fast as with softmax, %s required: %s.", c.Tokens, x.Label, digits(speed), digits(required), verdict)
			} else {
				out.find("A step %s, %s: %s times as fast as with softmax and %s %% of the bytes of keys and values, %s times and %s %% required: %s.", x.Part, x.Label, digits(speed), digits(100*x.Bytes/of.Bytes), digits(required), digits(100*decodeBytes), verdict)
			}
		}
	}
	if len(passes.Rows)+len(steps.Rows) > 0 {
		out.find("Weights are random. Exchanged layers get, with softmax too, the queries, keys and values of layers 0, 3 and 5 of all-MiniLM-L6-v2, two heads side by side: in a pass those of 8192 tokens of a novel, in steps those of two windows of 8192 tokens of a novel and two of meetings, one after another. Codebooks are keys at even distances. Processor time of one thread, medians of turns; at the end of a span and for the slowest step, single steps.")
	}
	for _, t := range []report.Table{passes, steps} {
		if len(t.Rows) > 0 {
			out.Tables = append(out.Tables, t)
		}
	}
	return out, nil
}
