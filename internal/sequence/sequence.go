package sequence

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/states"
	"github.com/farfield-ml/farfield/tensor"
)

// PartRange returns the range lo ≤ i < hi of n tokens that belongs to rank of size ranks. The
// parts differ by one token at most.
func PartRange(n int64, rank, size int) (lo, hi int64) {
	q, rest := n/int64(size), n%int64(size)
	at := func(r int64) int64 { return r*q + min(r, rest) }
	return at(int64(rank)), at(int64(rank) + 1)
}

// planLength is the sequence length for which chunks are chosen: a rank does not know the
// whole length.
const planLength = 1 << 20

// CheckMechanism returns an error if m cannot be computed over a divided sequence: if it has no
// causal state, if its state grows with the tokens, or if it supports only causal calls and
// causal is not set.
func CheckMechanism(m attention.Mechanism, causal bool) error {
	switch t := m.Traits(); {
	case !t.Causal:
		return fmt.Errorf("mechanism: %s has no state: %s", t.Name, t.NoCausal)
	case !t.Streaming:
		return fmt.Errorf("mechanism: the state of %s grows with the tokens; ranks exchange states of constant size", t.Name)
	case !causal && t.CausalOnly:
		return fmt.Errorf("causal: %s is causal alone", t.Name)
	case !causal && t.Banded:
		return fmt.Errorf("causal: %s with these settings goes over ranks in causal calls alone", t.Name)
	}
	return nil
}

// checkCall returns an error if the part's call is impossible with ranks.
func checkCall(m attention.Mechanism, out *tensor.Heads, c *attention.Call) error {
	if err := CheckMechanism(m, c.Causal); err != nil {
		return err
	}
	for _, x := range []struct {
		name  string
		heads *tensor.Heads
	}{{"q", &c.Q}, {"k", &c.K}, {"v", &c.V}, {"o", out}} {
		if err := x.heads.Check(x.name); err != nil {
			return err
		}
	}
	switch q, k := &c.Q, &c.K; {
	case q.B != k.B:
		return fmt.Errorf("k: B is %d, q has %d", k.B, q.B)
	case q.D != k.D:
		return fmt.Errorf("k: D is %d, q has %d", k.D, q.D)
	case out.B != q.B || out.H != q.H || out.N != q.N || out.D != c.V.D:
		return fmt.Errorf("o: shape is [%d,%d,%d,%d], needs [%d,%d,%d,%d]", out.B, out.H, out.N, out.D, q.B, q.H, q.N, c.V.D)
	case c.Causal && q.N > k.N:
		return fmt.Errorf("k: a causal part has %d queries and only %d keys", q.N, k.N)
	case c.Rope != nil && c.Rope.Rows() < max(q.N, k.N):
		return fmt.Errorf("rope: has %d rows, the part has %d positions", c.Rope.Rows(), max(q.N, k.N))
	case c.Init != nil || c.Final != nil:
		return errors.New("init and final: not defined with ranks, whose states are between them")
	case c.CuQ != nil || c.CuK != nil:
		return errors.New("cu_q and cu_k: not defined with ranks; give each whole sequences")
	case c.AttnKeep != nil:
		return errors.New("attn_keep: not defined with ranks, which see no pairs")
	case c.Drop != nil:
		return errors.New("dropout: not defined with ranks")
	case c.Form == attention.Direct || c.Form == attention.Step:
		return fmt.Errorf("form: %v is not that of ranks, which is linear", c.Form)
	}
	if c.HasDecay() {
		if err := attention.CheckShape("log_g", &c.LogG, c.K.B, c.K.H, c.K.N, 1); err != nil {
			return err
		}
	}
	return c.CheckApart("o", out)
}

// Saved holds what Forward saves for Backward, and memory that is reused.
type Saved struct {
	Queries attention.Saved // for the queries of this rank, with the counts of ill-conditioned rows and the like

	keys             attention.Saved // of the keys alone
	initState, local attention.State // the state before the queries, and the state of the rank's own keys
	total            states.Total    // of local, then of initState
	own              []tensor.Float  // sums of local
	decayFactors     [][]float64     // with decay, each rank's factors of the sums before it
	dinit, dfinal    attention.StateGrad
	sums             []tensor.Float

	after   attention.State // with Traits.Segments, the state after the part
	numbers []tensor.Float  // and the gradient of initState
}

// newState returns a state for the heads of a part.
func newState(m attention.Mechanism, c *attention.Call) (attention.State, error) {
	s := attention.Shape{B: c.Q.B, H: c.Q.H, Hkv: c.K.H, N: planLength, M: planLength, D: c.Q.D, Dv: c.V.D, Causal: c.Causal, Form: attention.Linear}
	if s.Chunk = c.Chunk; s.Chunk == 0 {
		s.Chunk = m.Plan(s).Chunk
	}
	s.Carry = attention.Compensated
	return m.NewState(s)
}

// keysOf returns the call of the keys of a part, between two states.
func keysOf(c *attention.Call, init, final attention.State) *attention.Call {
	k := *c
	k.Q, k.Init, k.Final = c.Q.Tokens(0, 0), init, final
	return &k
}

// queriesOf returns the call of a part's queries after a state. In causal calls it has
// their own keys.
func queriesOf(c *attention.Call, init attention.State) *attention.Call {
	q := *c
	if q.Init = init; !c.Causal {
		q.K, q.V, q.KeyLens, q.KeyMask = c.K.Tokens(0, 0), c.V.Tokens(0, 0), nil, nil
	}
	return &q
}

// Forward sets out [B,H,N,Dv] to the outputs of the queries of this rank. call holds this
// rank's part of the queries, keys and values, with its own key lengths, masks and rotation.
// The mechanism, its parameters, B, H, Hkv, D and Dv must be equal on all ranks. In causal
// calls the queries of a rank have the positions of its last keys, as in any call. keep is nil
// at inference.
//
// An error in the arguments of one rank is returned on all ranks.
func Forward(c *comm.Comm, m attention.Mechanism, out tensor.Heads, call *attention.Call, keep *Saved) error {
	if m.Traits().Segments && !call.Causal {
		return forwardDivided(c, m, out, call, keep)
	}
	x, saved := keep, (*attention.Saved)(nil)
	if x == nil {
		x = new(Saved)
	} else {
		saved = &x.Queries
	}
	failed := x.absorbKeys(m, &out, call)
	if m.Traits().Segments {
		if err := x.passStates(c, m, describeCall(m, call), failed); err != nil {
			return err
		}
		return m.Forward(out, queriesOf(call, x.initState), saved)
	}
	ranks, err := exchangeTotals(c, &x.total, call.Causal, describeCall(m, call), failed, func(own []tensor.Float) {
		if keep != nil {
			x.own = append(x.own[:0], own...)
		}
	})
	if err != nil {
		return err
	}
	x.decayFactors = ranks.decayFactors
	if err := states.SetTotal(x.initState, &x.total); err != nil {
		return err
	}
	return m.Forward(out, queriesOf(call, x.initState), saved)
}

// describeCall describes the parts of a call that must be equal on all ranks.
func describeCall(m attention.Mechanism, c *attention.Call) string {
	var element tensor.Float
	return fmt.Sprintf("%s (%s) of [B %d, H %d, Hkv %d, D %d, Dv %d], causal %t, chunk %d, %d bytes a number",
		m.Traits().Name, m.Setting(), c.Q.B, c.Q.H, c.K.H, c.Q.D, c.V.D, c.Causal, c.Chunk, unsafe.Sizeof(element))
}

// absorbKeys adds the keys of the part to a new state.
func (x *Saved) absorbKeys(m attention.Mechanism, out *tensor.Heads, call *attention.Call) (err error) {
	if err = checkCall(m, out, call); err != nil {
		return err
	}
	if x.local, err = newState(m, call); err != nil {
		return err
	}
	if x.initState, err = newState(m, call); err != nil {
		return err
	}
	none := *out
	none = none.Tokens(0, 0)
	if err = m.Forward(none, keysOf(call, nil, x.local), &x.keys); err != nil || m.Traits().Segments {
		return err
	}
	return totalOf(&x.total, m, x.local)
}

// totalOf is states.TotalOf of a state of m.
func totalOf(t *states.Total, m attention.Mechanism, st attention.State) error {
	if err := states.TotalOf(t, st); err != nil {
		return fmt.Errorf("mechanism: %s: %w, which alone ranks exchange", m.Traits().Name, err)
	}
	return nil
}

// Backward sets g from dout [B,H,N,Dv] and from the out and keep of Forward, which all ranks
// must have called for the same calls. It adds the gradients from this rank's tokens to the
// parameters of the mechanism; the caller sums them over the ranks. An error of one rank is
// returned on all ranks.
func Backward(c *comm.Comm, m attention.Mechanism, g *attention.Grads, dout, out tensor.Heads, call *attention.Call, keep *Saved) error {
	if m.Traits().Segments && !call.Causal {
		return backwardDivided(c, m, g, dout, out, call, keep)
	}
	sums, ages, err := keep.backQueries(m, g, dout, out, call)
	if err = comm.ShareError(c, err); err != nil {
		return err
	}
	if m.Traits().Segments {
		return keep.passGradients(c, m, g, call)
	}
	if call.Causal {
		err = comm.ReverseScan(c, sums, keep.decayFactors)
	} else {
		err = comm.AllReduce(c, sums)
	}
	if err != nil {
		return err
	}
	if keep.decayFactors != nil {
		// The part of dlog_g of earlier tokens that comes from the keys of this rank.
		own, err := states.AgesOf(nil, keep.local, keep.own, sums)
		if err != nil {
			return err
		}
		for i := range ages {
			ages[i] += own[i]
		}
		if err := comm.ReverseScan(c, ages, nil); err != nil {
			return err
		}
	}
	if call.K.N == 0 {
		return nil
	}
	return keep.backKeys(m, g, sums, ages, call)
}

// backQueries computes the gradients of the part's queries, of the state before them, and
// in causal calls of their own keys. It returns the gradient of the sums before the part,
// and with decay the ages.
func (x *Saved) backQueries(m attention.Mechanism, g *attention.Grads, dout, out tensor.Heads, call *attention.Call) (sums []tensor.Float, ages []float64, err error) {
	if x == nil || x.initState == nil {
		return nil, nil, errors.New("saved: not what Forward left for this call")
	}
	if g.DInit != nil || g.DFinal != nil {
		return nil, nil, errors.New("dinit and dfinal: not defined with ranks, whose states are between them")
	}
	if err := g.CheckShapes(&dout, call); err != nil {
		return nil, nil, err
	}
	if g.DLogG.D != 0 {
		if err := attention.CheckShape("d_log_g", &g.DLogG, call.K.B, call.K.H, call.K.N, 1); err != nil {
			return nil, nil, err
		}
	}
	if err := g.CheckMemory(&dout, &out, call, &x.Queries); err != nil {
		return nil, nil, err
	}
	q := *g
	q.DInit = &x.dinit
	if !call.Causal {
		// backKeys sets them, after the exchange.
		q.DK, q.DV = g.DK.Tokens(0, 0), g.DV.Tokens(0, 0)
	}
	if err := m.Backward(&q, dout, out, queriesOf(call, x.initState), &x.Queries); err != nil {
		return nil, nil, err
	}
	if x.sums, err = states.AppendSums(x.sums[:0], &x.dinit); err != nil {
		return nil, nil, err
	}
	if x.decayFactors != nil {
		ages = states.Ages(nil, &x.dinit)
	}
	return x.sums, ages, nil
}

// backKeys adds the parts that come from queries of other ranks to the gradients of the
// part's keys.
func (x *Saved) backKeys(m attention.Mechanism, g *attention.Grads, sums []tensor.Float, ages []float64, call *attention.Call) error {
	if err := states.SetSums(&x.dfinal, x.local, sums, ages); err != nil {
		return err
	}
	k := attention.Grads{DQ: g.DQ.Tokens(0, 0), DK: g.DK, DV: g.DV, DLogG: g.DLogG, DFinal: &x.dfinal}
	var init attention.State
	if call.Causal {
		init = x.initState
		k.DK, k.DV, k.DLogG = newHeadsLike(g.DK), newHeadsLike(g.DV), newHeadsLike(g.DLogG)
	}
	none := tensor.HeadsOf(nil, call.Q.B, call.Q.H, 0, call.V.D)
	if err := m.Backward(&k, none, none, keysOf(call, init, x.local), &x.keys); err != nil {
		return err
	}
	if call.Causal {
		addHeads(g.DK, k.DK)
		addHeads(g.DV, k.DV)
		addHeads(g.DLogG, k.DLogG)
	}
	return nil
}

// newHeadsLike returns zero heads of the shape of x.
func newHeadsLike(x tensor.Heads) tensor.Heads {
	return tensor.NewHeads(x.B, x.H, x.N, x.D)
}

// addHeads adds y to x, elementwise.
func addHeads(x, y tensor.Heads) {
	for i := range x.B * x.H {
		to, from := x.Head(i/x.H, i%x.H), y.Head(i/x.H, i%x.H)
		for j := range to.Rows {
			row := to.Row(j)
			for c, d := range from.Row(j) {
				row[c] += d
			}
		}
	}
}
