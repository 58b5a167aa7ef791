package exchange

import (
	"context"
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/tensor"
)

// inputTols are the bounds of the error that are tried with clusters of the input, the cheapest first.
var inputTols = []float64{0.3, 0.2, 0.1, 0.05, 0.02}

// leastInput is the number of keys up to which clusters of the input are softmax, in calls that are not
// causal; of causal calls the last inputSpan keys are.
const leastInput, inputSpan = 1024, 512

// searchInput returns the cheapest trial with clusters of the input if it meets the wish at less cost
// than best, which has a codebook, or if that does not meet it; otherwise best. It says why in x.
func (r *run) searchInput(best *Trial, allowed *float64, x *Result) (*Trial, error) {
	least := leastInput
	if r.config.IsCausal() {
		least = 2 * inputSpan
	}
	switch {
	case allowed == nil:
		x.Why = "a codebook was asked for"
	case r.Wish != nil && r.Wish.State > 0:
		x.Why = "clusters of the input keep all keys, and a state of fixed size was asked for"
	case x.Window <= least:
		x.Why = fmt.Sprintf("a codebook was taken; clusters of each input (centres=input) were not tried: up to %d tokens they are softmax, and windows have %d here (--length allows more where the model does)", least, x.Window)
	}
	if x.Why != "" {
		return best, nil
	}
	meets := best.loss() <= *allowed
	for _, tol := range inputTols {
		t := &Trial{Choice: Choice{Block: 32, Window: 16, Tol: tol}}
		if err := r.try(t, r.layers); err != nil {
			return nil, err
		}
		var err error
		if t.Pairs, err = r.pairShare(t.Choice); err != nil {
			return nil, err
		}
		t.Cost = float64(len(r.layers)) * r.inputFLOPs(t.Pairs)
		x.Trials = append(x.Trials, *t)
		if t.loss() > *allowed {
			continue
		}
		with := fmt.Sprintf("clusters of the input (tol %g, %.0f %% of the pairs one by one) take %.3g multiply-adds", tol, 100*t.Pairs, t.Cost/2)
		switch {
		case !meets:
			x.Why = with + ", and no codebook meets the wish"
		case t.Cost < best.Cost:
			x.Why = fmt.Sprintf("%s, the cheapest codebook that meets the wish %.3g", with, best.Cost/2)
		default:
			x.Why = fmt.Sprintf("it takes %.3g multiply-adds, %s", best.Cost/2, with)
			return best, nil
		}
		x.pairs = t.Pairs
		return t, nil
	}
	x.Why = fmt.Sprintf("clusters of the input do not meet the wish with a tol of %g or more", inputTols[len(inputTols)-1])
	return best, nil
}

// pairShare returns the mean share of pairs that a choice with clusters of the input computes one by one,
// in the first held-out window.
func (r *run) pairShare(c Choice) (share float64, err error) {
	y, err := r.s.Model.Exchanged(r.request(c, r.layers))
	if err != nil {
		return 0, err
	}
	b, err := r.s.batch(r.ctx, r.refs[0].windows[0])
	if err != nil {
		return 0, err
	}
	return PairShare(r.ctx, y, b)
}

// PairShare returns the mean share of the pairs of a batch that is computed one by one by
// mechanisms which choose pairs. It returns 0 if m has no such mechanism, and an error if the batch
// does not fit the model.
func PairShare(ctx context.Context, m *model.Model, b *model.Batch) (float64, error) {
	var sum float64
	var calls int
	look := func(_ string, of attention.Mechanism, c *attention.Call) error {
		keep := &attention.Saved{}
		if err := of.Forward(tensor.NewHeads(c.Q.B, c.Q.H, c.Q.N, c.V.D), c, keep); err != nil {
			return err
		}
		if keep.ExactShare > 0 {
			sum += keep.ExactShare
			calls++
		}
		return nil
	}
	err := model.ShareWatched(m, look).VisitLayers(ctx, b, func(bool, int, tensor.Mat) error { return nil })
	return sum / float64(max(calls, 1)), err
}

// inputFLOPs counts the operations of attention with clusters of the input in a layer, given the share
// of pairs that are computed one by one. Clusters have √(n/8) of n keys that are clustered together, a
// quarter of all in causal calls, at least 16; their centres are found at two levels, in three rounds.
func (r *run) inputFLOPs(share float64) float64 {
	s := r.shape(r.Length)
	n, d, dv := float64(s.N), float64(s.D), float64(s.Dv)
	together, pairs := n, n*n
	if s.Causal {
		together, pairs = n/4, n*(n+1)/2
	}
	size := max(math.Floor(math.Sqrt(together/8)), 16)
	return float64(s.H)*(2*share*pairs*(d+dv)+2*pairs/size*(2*d+dv)) + float64(s.Hkv)*2*n*6*math.Sqrt(n/size)*d
}
