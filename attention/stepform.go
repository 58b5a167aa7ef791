package attention

import (
	"github.com/farfield-ml/farfield/tensor"
)

// forwardStep is Forward token by token through a State.
func forwardStep[T tensor.Float](m Mechanism[T], out tensor.Heads[T], c *Call[T]) error {
	suspected := false
	for _, s := range c.sequences() {
		sh := c.Shape()
		sh.B = 1
		st, err := m.NewState(sh)
		if err != nil {
			return err
		}
		// piece is the call over queries i0 ≤ i < i1 and keys j0 ≤ j < j1.
		piece := func(i0, i1, j0, j1 int) (tensor.Heads[T], *Call[T]) {
			p := &Call[T]{
				Q: row(c.Q, s.b).Tokens(s.q0+i0, s.q0+i1),
				K: row(c.K, s.b).Tokens(s.k0+j0, s.k0+j1),
				V: row(c.V, s.b).Tokens(s.k0+j0, s.k0+j1),
			}
			if c.KeyMask != nil {
				p.KeyMask = c.KeyMask[s.b*c.K.N+s.k0+j0:][:j1-j0]
			}
			if c.decays() {
				p.LogG = row(c.LogG, s.b).Tokens(s.k0+j0, s.k0+j1)
			}
			at := j0
			if i1 > i0 && j1 == j0 { // queries alone
				at = i0
				if c.Causal {
					at += s.off
				}
			}
			if c.Rope != nil {
				p.Rope = c.Rope.Slice(at)
			}
			p.Drop = c.Drop.piece(&s, i0, j0, c.Q.N, c.K.N, at)
			return row(out, s.b).Tokens(s.q0+i0, s.q0+i1), p
		}
		lead, steps := s.m, 0 // keys absorbed first, then stepped
		unseen := 0
		if c.Causal {
			unseen = min(max(-s.off, 0), s.n)
			lead = min(max(s.off, 0), s.m)
			steps = max(min(s.n-unseen, s.m-lead), 0)
		}
		o, p := piece(0, unseen, 0, lead)
		for h := range o.H {
			for i := range o.N {
				clear(o.At(0, h).Row(i))
			}
		}
		if err := st.Absorb(p); err != nil {
			return err
		}
		if steps > 0 {
			o, p = piece(unseen, unseen+steps, lead, lead+steps)
			if err := st.Step(o, p); isNonFinite(err) {
				suspected = true
			} else if err != nil {
				return err
			}
		}
		if rest := unseen + steps; rest < s.n {
			o, p = piece(rest, s.n, s.m, s.m)
			if err := st.Read(o, p); isNonFinite(err) {
				suspected = true
			} else if err != nil {
				return err
			}
		}
	}
	return report(out, nil, suspected)
}

// row views batch row b alone.
func row[T tensor.Float](x tensor.Heads[T], b int) tensor.Heads[T] {
	if len(x.Data) > 0 {
		x.Data = x.Data[b*x.SB:]
	}
	x.B = 1
	return x
}
