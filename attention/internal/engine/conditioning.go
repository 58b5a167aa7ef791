package engine

import (
	"math"

	"github.com/farfield-ml/farfield/attention/internal/contract"
	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/attention/internal/spec"
	"github.com/farfield-ml/farfield/internal/scratch"
)

// IsWellConditioned reports that no denominator of queries of width d can cancel: weights are
// never negative, and above 0 wherever scores lie. They may be so small that none of
// a row is left (over notices).
func (e conditioning[T]) IsWellConditioned(d int) bool {
	s := &e.Spec
	if s.Unnormalized || s.Floor > 0 {
		return true
	}
	if s.MapsToZeros() {
		return s.Positive && s.Eps > 0
	}
	if s.Exp || !s.Positive || s.HasMap() {
		return s.Exp || s.Positive
	}
	if s.Similarity != nil {
		return s.AbsPoly(0) > 0
	}
	return s.HasNoRoot(d)
}

// largestWeight returns the bound for weak of weights with scores within ±reach, for queries of
// width d. Negative: only a denominator of 0 is weak.
func (e conditioning[T]) largestWeight(d int, reach float64) float64 {
	if s := &e.Spec; e.IsWellConditioned(d) || s.Positive && (s.HasMap() || s.Similarity != nil || s.Coef[0] <= 0) {
		return -1
	}
	if math.IsInf(reach, 1) {
		reach = 0 // nothing bounds the scores of mapped rows
	}
	return e.Spec.AbsPoly(reach)
}

// BoundScore bounds |s| for query i of head h of a sequence: by the normalisation,
// or, where that does not, by the length of the query and of the longest key.
func (e conditioning[T]) BoundScore(c *contract.Call[T], s *SequenceTask, longest []float64, h, i int) float64 {
	if p, ok := e.Spec.Map.(headtask.Products[T]); ok {
		return headtask.ScoreGain(c.Drop) * e.Spec.ProductReach(p.Coef, c.Q.D, h)
	}
	if longest == nil {
		return headtask.ScoreGain(c.Drop) * e.Spec.MaxScore(c.Q.D, h)
	}
	x := scratch.Norm2(c.Q.Head(s.Batch, h).Row(s.Q0 + i))
	return math.Abs(float64(e.Spec.RowScale(c.Q.D, h))) * x * longest[h/(c.Q.H/c.K.H)] * headtask.ScoreGain(c.Drop)
}

// LongestKeys returns the length of the longest key of each key head of a
// sequence that exists, nil where the normalisation bounds them or a feature
// map comes after it.
func (e conditioning[T]) LongestKeys(c *contract.Call[T], s *SequenceTask, mask []bool) []float64 {
	if e.Spec.Norm != spec.NoNorm || e.Spec.HasMap() || e.Spec.Positive {
		return nil
	}
	longest := make([]float64, c.K.H)
	for h := range longest {
		k := c.K.Head(s.Batch, h)
		for j := range s.M {
			if mask == nil || mask[j] {
				longest[h] = max(longest[h], scratch.Norm2(k.Row(s.K0+j)))
			}
		}
	}
	return longest
}

// countEffectiveKeys returns, for each key head of s and each query, the number of visible keys; with
// decay the sum of their factors. before holds this of the initial state for each key
// head.
func (e conditioning[T]) countEffectiveKeys(c *contract.Call[T], s *SequenceTask, mask []bool, before []headtask.PriorKeys) [][]float64 {
	left := make([][]float64, c.K.H)
	for h := range left {
		a, x := headtask.HeapAges(s.M), before[h]
		a.Pending = x.PendingLogDecay
		rate := func(j int) float64 { return 0 }
		if c.HasDecay() {
			g := c.LogG.Head(s.Batch, h)
			rate = func(j int) float64 { return float64(g.Row(s.K0 + j)[0]) }
		}
		enters := func(j int) float64 { return 1 }
		if c.HasDecay() && e.Spec.Gated {
			enters = func(j int) float64 { return -math.Expm1(rate(j)) }
		}
		keys := make([]float64, s.M+1) // those before each, where all pairs are kept
		for j := range s.M {
			exists := mask == nil || mask[j]
			keys[j] = x.Count
			if a.Add(rate(j), exists); exists {
				x.Add(a.SumBetween(j-1, j), enters(j))
			}
		}
		keys[s.M] = x.Count
		left[h] = make([]float64, s.N)
		for i := range left[h] {
			end := s.M
			if c.Causal {
				end = min(max(i+s.Offset+1, 0), s.M)
			}
			if c.AttnKeep == nil {
				left[h][i] = keys[end]
				continue
			}
			last := -1
			for j := end - 1; j >= 0; j-- {
				if !c.AttnKeep[(s.Q0+i)*c.K.N+s.K0+j] || mask != nil && !mask[j] {
					continue
				}
				last = max(last, j)
				left[h][i] += enters(j) * math.Exp(a.SumBetween(j, last))
			}
		}
	}
	return left
}

// countWeakRows counts the queries that see no key and those whose denominator nearly
// cancels, or has vanished.
func (e conditioning[T]) countWeakRows(c *contract.Call[T], seqs []SequenceTask, seg segment[T], keep *contract.Saved[T], vanished bool) {
	for i := range seqs {
		s := &seqs[i]
		var mask []bool
		if c.KeyMask != nil {
			mask = c.KeyMask[s.Batch*c.K.N+s.K0:][:s.M]
		}
		sound := e.IsWellConditioned(c.Q.D) && !vanished // no denominator cancels
		if sound && (mask == nil && c.AttnKeep == nil || s.priorKeys > 0) {
			unseen := 0
			switch {
			case s.priorKeys > 0:
			case s.M == 0:
				unseen = s.N
			case c.Causal:
				unseen = min(max(-s.Offset, 0), s.N)
			}
			keep.UnseenCount += int64(unseen) * int64(c.Q.H)
			continue
		}
		exist := make([]int, s.M+1) // keys that exist before j
		for j := range s.M {
			exist[j+1] = exist[j]
			if mask == nil || mask[j] {
				exist[j+1]++
			}
		}
		longest := e.LongestKeys(c, s, mask)
		var left [][]float64
		if (HasFadingKeys(c) || c.Init != nil) && !sound {
			before := make([]headtask.PriorKeys, c.K.H)
			for h := range before {
				if seg == nil {
					break
				}
				before[h] = seg.Earlier(i*c.K.H + h)
				if longest != nil {
					longest[h] = max(longest[h], before[h].Longest)
				}
			}
			left = e.countEffectiveKeys(c, s, mask, before)
		}
		most := make([]float64, c.Q.H)
		if !sound && longest == nil { // the same of all queries
			for h := range most {
				most[h] = e.largestWeight(c.Q.D, e.BoundScore(c, s, nil, h, 0))
			}
		}
		for i := range s.N {
			last := s.M
			if c.Causal {
				last = min(max(i+s.Offset+1, 0), s.M)
			}
			seen := s.priorKeys + int64(exist[last])
			if c.AttnKeep != nil {
				seen = 0
				for j := range last {
					if c.AttnKeep[(s.Q0+i)*c.K.N+s.K0+j] && (mask == nil || mask[j]) {
						seen++
					}
				}
			}
			if seen == 0 {
				keep.UnseenCount += int64(c.Q.H)
				continue
			}
			if sound {
				continue
			}
			for h := range c.Q.H {
				den := keep.Den[(s.Batch*c.Q.H+h)*c.Q.N+s.Q0+i]
				keys := float64(seen)
				if left != nil {
					keys = left[h/(c.Q.H/c.K.H)][i]
				}
				if longest != nil {
					most[h] = e.largestWeight(c.Q.D, e.BoundScore(c, s, longest, h, i))
				}
				if headtask.IsIllConditioned(den, keys, most[h]) {
					if keep.WeakCount == 0 {
						keep.WeakAt = [3]int{s.Batch, h, s.Q0 + i}
					}
					keep.WeakCount++
				}
			}
		}
	}
}

// factor returns the gate factor of a key in a state, from the length of its features.
// The features of an ungated key have the length of their bound.
func (e *Engine[T]) factor(length float64) float64 {
	if b, ok := e.Spec.Features.(spec.BoundedProduct); ok && e.Spec.Gated {
		return length / math.Sqrt(b.Bound())
	}
	return 1
}
