package sequence

import (
	"errors"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/states"
	"github.com/farfield-ml/farfield/tensor"
)

// The states of mechanisms with Traits.Segments cannot be added up, because besides sums they
// hold the last tokens, which are near to the next queries. In causal calls, after all ranks
// have absorbed their keys, each rank receives the state before its tokens from the rank
// before, appends its own state and passes the result on. In the backward pass each rank
// receives the gradient of the state after its tokens from the rank behind. It adds what that
// gives to the gradients of its own keys and values, and sends the rank before the gradient of
// the state before its tokens: what passed through, and what its own queries add.

// passStates sets initState to the state of all tokens of the ranks before, and after to that
// state followed by local. failed is an earlier error of this rank. An error of one rank is
// returned on all ranks.
func (x *Saved) passStates(c *comm.Comm, m attention.Mechanism, what string, failed error) error {
	if err := comm.ShareError(c, failed); err != nil {
		return err
	}
	if err := comm.CheckAgreement(c, comm.Field{Name: "call", Value: what}); err != nil {
		return err
	}
	x.after = x.initState.Clone()
	for r := range c.Size() {
		var data []byte
		var err error
		if c.Rank() == r && failed == nil {
			if failed = x.after.Merge(x.local); failed == nil && r+1 < c.Size() {
				data, failed = x.after.AppendBinary(nil)
			}
		}
		if r+1 == c.Size() {
			break
		}
		if data, err = comm.Pass(c, data, r, r+1); err != nil {
			return err
		}
		if c.Rank() == r+1 {
			if x.initState, failed = m.RestoreState(data); failed == nil {
				x.after = x.initState.Clone()
			}
		}
	}
	return comm.ShareError(c, failed)
}

// exchangePassed is ExchangeState for mechanisms with Traits.Segments.
func exchangePassed(c *comm.Comm, m attention.Mechanism, st attention.State, causal bool, failed error) error {
	if failed == nil && !causal {
		failed = errors.New("causal: " + m.Traits().Name + " exchanges states in causal calls alone")
	}
	x := Saved{local: st}
	if failed == nil {
		x.initState = st.Clone()
		x.initState.Reset()
	}
	if err := x.passStates(c, m, m.Traits().Name+" ("+m.Setting()+")", failed); err != nil {
		return err
	}
	st.Reset()
	return st.Merge(x.initState)
}

// passGradients adds to g the gradients of this rank's keys and values from queries of later
// ranks. dinit holds the gradient of initState from this rank's own queries.
func (x *Saved) passGradients(c *comm.Comm, m attention.Mechanism, g *attention.Grads, call *attention.Call) error {
	var failed error
	x.numbers = states.AppendNumbers(x.numbers[:0], &x.dinit)
	for r := c.Size() - 1; r > 0; r-- {
		var own []tensor.Float
		if c.Rank() == r {
			own = x.numbers
		}
		later, err := comm.Pass(c, own, r, r-1)
		if err != nil {
			return err
		}
		if c.Rank() == r-1 {
			failed = x.backState(m, g, call, later)
		}
	}
	return comm.ShareError(c, failed)
}

// backState adds to g, and to numbers, the part that comes from later, the gradient of the
// state after this rank's tokens.
func (x *Saved) backState(m attention.Mechanism, g *attention.Grads, call *attention.Call, later []tensor.Float) error {
	if call.K.N > 0 {
		if err := states.SetNumbers(&x.dfinal, x.after, later); err != nil {
			return err
		}
		k := attention.Grads{DQ: g.DQ.Tokens(0, 0), DK: newHeadsLike(g.DK), DV: newHeadsLike(g.DV), DInit: &x.dinit, DFinal: &x.dfinal}
		none := tensor.HeadsOf(nil, call.Q.B, call.Q.H, 0, call.V.D)
		if err := m.Backward(&k, none, none, keysOf(call, x.initState, x.after), &x.keys); err != nil {
			return err
		}
		addHeads(g.DK, k.DK)
		addHeads(g.DV, k.DV)
		later = states.AppendNumbers(later[:0], &x.dinit)
	}
	if len(later) != len(x.numbers) {
		return errors.New("saved: not what Forward left for this call")
	}
	for i, y := range later {
		x.numbers[i] += y
	}
	return nil
}

// forwardDivided is Forward for calls without a causal mask, for mechanisms with
// Traits.Segments.
func forwardDivided(c *comm.Comm, m attention.Mechanism, out tensor.Heads, call *attention.Call, keep *Saved) error {
	var saved *attention.Saved
	if keep != nil {
		saved = &keep.Queries
	}
	err := checkCall(m, &out, call)
	if err == nil {
		err = headwise.CheckDivided(m, &out, call, saved)
	}
	if err = comm.ShareError(c, err); err != nil {
		return err
	}
	if err := comm.CheckAgreement(c, comm.Field{Name: "call", Value: describeCall(m, call)}); err != nil {
		return err
	}
	return headwise.DividedOf(m).ForwardDivided(c, out, call, saved)
}

// backwardDivided is Backward for calls without a causal mask, for mechanisms with
// Traits.Segments.
func backwardDivided(c *comm.Comm, m attention.Mechanism, g *attention.Grads, dout, out tensor.Heads, call *attention.Call, keep *Saved) error {
	err := checkCall(m, &out, call)
	switch {
	case err != nil:
	case keep == nil || keep.Queries.Own == nil:
		err = errors.New("saved: not what Forward left for this call")
	case g.DInit != nil || g.DFinal != nil:
		err = errors.New("dinit and dfinal: not defined with ranks, whose states are between them")
	default:
		if err = headwise.CheckDivided(m, &out, call, nil); err == nil {
			err = g.CheckShapes(&dout, call)
		}
		if err == nil {
			err = g.CheckMemory(&dout, &out, call, &keep.Queries)
		}
	}
	if err = comm.ShareError(c, err); err != nil {
		return err
	}
	return headwise.DividedOf(m).BackwardDivided(c, g, dout, out, call, &keep.Queries)
}
