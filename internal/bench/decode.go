package bench

import (
	"strconv"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// cacheSteps are the tokens by which a state that grows is allowed to.
const cacheSteps = 64

// Decode returns the case of the suite decode: a state takes in and reads one token after the M
// tokens of the shape. It ignores N and Form of a. It returns an error for impossible settings, and
// a LackError for a mechanism without states.
func (a Attention) Decode() (*Case, error) {
	a.Shape.N, a.Shape.Form, a.Shape.Causal = 1, attention.Step, false
	m, c, err := a.describeCase()
	if err != nil {
		return nil, err
	}
	s := a.Shape
	c.Line.Direction, c.Line.Causal = forward, true // nothing follows
	c.X = float64(s.M)
	token := 4 * float64(s.B*s.Hkv) * float64(s.D+s.Dv)
	if c.Grows {
		one := s
		one.M = 1 // is added; the others were
		p := m.Plan(s)
		window := p.WindowFLOPs // of a full window
		if width, err := strconv.Atoi(a.Options.Set["window"]); err == nil && width > s.M+1 {
			window *= float64(s.M+1) / float64(width)
		}
		c.FLOPs = LinearFLOPs(one, p.F) + float64(s.B*s.H)*window // 0: not counted
		c.Need = p.Bytes * float64(s.B*s.Hkv)
	} else {
		c.Need = 2 * token * float64(s.M) // the cache, and the copy that grows
	}
	c.open = func() (*work, error) { return a.openDecode(m, c.Grows) }
	return c, nil
}

func (a Attention) openDecode(m attention.Mechanism, constant bool) (*work, error) {
	s := a.Shape
	const most = 1024
	key := rng.New(1)
	k, v := randomHeads(key.Fold(2), s.B, s.Hkv, most, s.D), randomHeads(key.Fold(3), s.B, s.Hkv, most, s.Dv)
	state, err := m.NewState(s)
	if err != nil {
		return nil, err
	}
	for n := 0; n < s.M; n += most {
		l := min(most, s.M-n)
		if err := state.Absorb(&attention.Call{K: k.Tokens(0, l), V: v.Tokens(0, l)}); err != nil {
			return nil, err
		}
	}
	token := &attention.Call{Q: randomHeads(key.Fold(1), s.B, s.H, 1, s.D), K: k.Tokens(0, 1), V: v.Tokens(0, 1)}
	out := tensor.NewHeads(s.B, s.H, 1, s.Dv)
	// A round of a state of fixed size is a chunk, which is cheaper to read while
	// it is young, and closed in the end.
	w := &work{calls: max(m.Plan(s).Chunk, 1), held: state.Bytes()}
	grown := state
	if !constant {
		w.calls = min(cacheSteps, max(s.M/8, 1))
		w.prepare = func() error {
			grown = state.Clone()
			return grown.Step(out, token) // makes room for more
		}
	}
	w.call = func() error {
		for range w.calls {
			if err := grown.Step(out, token); err != nil {
				return err
			}
		}
		return nil
	}
	return w, nil
}
