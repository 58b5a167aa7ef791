package states

import (
	"errors"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// ErrStepKeeps is the error of Forward for the form Step with a Saved: steps save nothing for
// Backward.
var ErrStepKeeps = errors.New("form: step keeps nothing for the gradient; use another form for it")

// ForwardByStep sets out [B,H,N,Dv] like Forward, but token by token through a State of m. If
// padded is set, the keys beyond the key length of a row are treated as masked tokens that have
// queries of their own. It returns the errors of m.NewState and of the State.
func ForwardByStep(m attention.Mechanism, out tensor.Heads, c *attention.Call, padded bool) error {
	suspected := false
	for _, s := range c.Sequences() {
		mask, keys := c.Mask(&s), s.M
		if padded && s.Keys > s.M {
			mask, keys = make([]bool, s.Keys), s.Keys
			for j := range s.M {
				mask[j] = c.KeyMask == nil || c.KeyMask[s.Batch*c.K.N+s.K0+j]
			}
		}
		sh := c.Shape()
		sh.B = 1
		st, err := m.NewState(sh)
		if err != nil {
			return err
		}
		// piece is the call over queries i0 ≤ i < i1 and keys j0 ≤ j < j1.
		piece := func(i0, i1, j0, j1 int) (tensor.Heads, *attention.Call) {
			p := &attention.Call{
				Q: batchRow(c.Q, s.Batch).Tokens(s.Q0+i0, s.Q0+i1),
				K: batchRow(c.K, s.Batch).Tokens(s.K0+j0, s.K0+j1),
				V: batchRow(c.V, s.Batch).Tokens(s.K0+j0, s.K0+j1),
			}
			if mask != nil {
				p.KeyMask = mask[j0:j1]
			}
			if c.HasDecay() {
				p.LogG = batchRow(c.LogG, s.Batch).Tokens(s.K0+j0, s.K0+j1)
			}
			at := j0
			if i1 > i0 && j1 == j0 { // only queries
				at = i0
				if c.Causal {
					at += s.Offset
				}
			}
			if c.Rope != nil {
				p.Rope = c.Rope.Slice(at)
			}
			p.Drop = sliceDrop(c.Drop, &s, i0, j0, c.Q.N, c.K.N, at)
			return batchRow(out, s.Batch).Tokens(s.Q0+i0, s.Q0+i1), p
		}
		lead, steps := keys, 0 // keys absorbed first, then stepped
		unseen := 0
		if c.Causal {
			unseen = min(max(-s.Offset, 0), s.N)
			lead = min(max(s.Offset, 0), keys)
			steps = max(min(s.N-unseen, keys-lead), 0)
		}
		o, p := piece(0, unseen, 0, lead)
		for h := range o.H {
			scratch.ClearRows(o.Head(0, h), 0, o.N)
		}
		if err := st.Absorb(p); err != nil {
			return err
		}
		if steps > 0 {
			o, p = piece(unseen, unseen+steps, lead, lead+steps)
			if err := st.Step(o, p); attention.IsNonFinite(err) {
				suspected = true
			} else if err != nil {
				return err
			}
		}
		if rest := unseen + steps; rest < s.N {
			o, p = piece(rest, s.N, keys, keys)
			if err := st.Read(o, p); attention.IsNonFinite(err) {
				suspected = true
			} else if err != nil {
				return err
			}
		}
	}
	return attention.ReportNonFinite(out, nil, suspected)
}

// batchRow returns the view of batch row b of x [B,H,N,D].
func batchRow(x tensor.Heads, b int) tensor.Heads {
	if len(x.Data) > 0 {
		x.Data = x.Data[b*x.SB:]
	}
	x.B = 1
	return x
}

// sliceDrop returns d for a piece of sequence s of c: the queries from q0 on and the keys from
// k0 on, with positions from start on.
func sliceDrop(d *attention.Drop, s *attention.Sequence, q0, k0, n, m, start int) *attention.Drop {
	if !d.IsActive() {
		return nil
	}
	piece := *d
	piece.Source = &attention.DropCoords{Row: s.Index, Start: d.Start + int64(start), B: s.Batch, Q0: s.Q0 + q0, K0: s.K0 + k0, N: n, M: m}
	return &piece
}
