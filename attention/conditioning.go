package attention

import (
	"math"

	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// isWellConditioned reports that no denominator of queries of width d can cancel: weights are
// never negative, and above 0 wherever scores lie. They may be so small that none of
// a row is left (over notices).
func (e conditioning[T]) isWellConditioned(d int) bool {
	s := &e.spec
	if s.Unnormalized || s.Floor > 0 {
		return true
	}
	if s.mapsToZeros() {
		return s.Positive && s.Eps > 0
	}
	if s.Exp || !s.Positive || s.hasMap() {
		return s.Exp || s.Positive
	}
	if s.Similarity != nil {
		return s.absPoly(0) > 0
	}
	return s.hasNoRoot(d)
}

// hasNoRoot reports that f, which is never negative, is known to be above 0
// wherever the scores of rows of width d lie.
func (s *Spec[T]) hasNoRoot(d int) bool {
	c := s.Coef
	switch {
	case c[0] <= 0:
		return false
	case len(c) == 3 && c[1]*c[1] < 4*c[0]*c[2]:
		return true
	case len(c)%2 == 1 && s.isTaylorOfExp():
		return true // T_p of even p: at its minimum it is s^p/p!, and T_{p-1} = 0
	case s.Tau != nil:
		return false // nothing bounds its scores
	}
	return s.absPoly(s.maxScore(d, 0)) < 2*c[0]
}

// isTaylorOfExp reports that f is the beginning of the exponential series.
func (s *Spec[T]) isTaylorOfExp() bool {
	factorial := 1.0
	for l, c := range s.Coef {
		factorial *= float64(max(l, 1))
		if c != 1/factorial {
			return false
		}
	}
	return true
}

// mapsToZeros reports that mapped rows may be zero.
func (s *Spec[T]) mapsToZeros() bool {
	_, row := s.Map.(ZeroingMap)
	_, block := s.Features.(ZeroingMap)
	return row || block
}

// isIllConditioned reports that the denominator den of seen keys, decay included, nearly cancels;
// see Saved.WeakCount. most bounds the weights. Weights that are never negative cannot
// cancel, but may all be 0. A polynomial with a constant has small weights where other
// terms cancel the constant. A denominator of at most 0 means that negative weights
// dominate.
func isIllConditioned[T tensor.Float](den T, seen, most float64) bool {
	if most < 0 {
		return hasInfiniteReciprocal(den)
	}
	return den <= 0 || float64(den) < most*seen/1024
}

// largestWeight returns the bound for weak of weights with scores within ±reach, for queries of
// width d. Negative: only a denominator of 0 is weak.
func (e conditioning[T]) largestWeight(d int, reach float64) float64 {
	if s := &e.spec; e.isWellConditioned(d) || s.Positive && (s.hasMap() || s.Similarity != nil || s.Coef[0] <= 0) {
		return -1
	}
	if math.IsInf(reach, 1) {
		reach = 0 // nothing bounds the scores of mapped rows
	}
	return e.spec.absPoly(reach)
}

// invertDen returns 1/den. It returns 0 if weights that are never negative, or that gates
// scale, sum to 0 or to so little that 1/den overflows. Such a query gets the output of
// a query without visible keys and is counted (Saved.WeakCount). The largest weight of an
// exponential is near 1: if there is none, all scores have overflowed.
func (u *headTask[T]) invertDen(den T) T {
	if u.spec.givesNumerators {
		return 1
	}
	if u.spec.FloorSize && den < 0 {
		den = -den
	}
	if !u.spec.Exp && (u.spec.Positive || u.spec.Gated) && hasInfiniteReciprocal(den) {
		if u.noticed != nil {
			u.noticed.vanish.Store(true)
		}
		return 0
	}
	return 1 / den
}

// hasInfiniteReciprocal reports that 1/den is beyond the largest number: den is 0, or below a
// quarter of the smallest normal number in size and has lost digits.
func hasInfiniteReciprocal[T tensor.Float](den T) bool {
	x := 1 / den
	return x-x != 0 && den == den
}

// boundScore bounds |s| for query i of head h of a sequence: by the normalisation,
// or, where that does not, by the length of the query and of the longest key.
func (e conditioning[T]) boundScore(c *Call[T], s *Sequence, longest []float64, h, i int) float64 {
	if p, ok := e.spec.Map.(products[T]); ok {
		return c.Drop.scoreGain() * e.spec.productReach(p.coef, c.Q.D, h)
	}
	if longest == nil {
		return c.Drop.scoreGain() * e.spec.maxScore(c.Q.D, h)
	}
	x := scratch.Norm2(c.Q.At(s.Batch, h).Row(s.Q0 + i))
	return math.Abs(float64(e.spec.scale(c.Q.D, h))) * x * longest[h/(c.Q.H/c.K.H)] * c.Drop.scoreGain()
}

// longestKeys returns the length of the longest key of each key head of a
// sequence that exists, nil where the normalisation bounds them or a feature
// map comes after it.
func (e conditioning[T]) longestKeys(c *Call[T], s *Sequence, mask []bool) []float64 {
	if e.spec.Norm != NoNorm || e.spec.hasMap() || e.spec.Positive {
		return nil
	}
	longest := make([]float64, c.K.H)
	for h := range longest {
		k := c.K.At(s.Batch, h)
		for j := range s.M {
			if mask == nil || mask[j] {
				longest[h] = max(longest[h], scratch.Norm2(k.Row(s.K0+j)))
			}
		}
	}
	return longest
}

// priorKeys is what a state before a call tells of the keys of one key head.
type priorKeys struct {
	count           float64 // their number, with decay the sum of their factors up to the last one
	pendingLogDecay float64 // the decay that waits for the next
	longest         float64 // of the prepared keys that it has one by one
}

// add counts a key that exists and entered with a factor, gone being the decay
// since the one before.
func (x *priorKeys) add(gone, factor float64) { x.count = factor + x.count*math.Exp(gone) }

// countEffectiveKeys returns, for each key head of s and each query, the number of visible keys; with
// decay the sum of their factors. before holds this of the initial state for each key
// head.
func (e conditioning[T]) countEffectiveKeys(c *Call[T], s *Sequence, mask []bool, before []priorKeys) [][]float64 {
	left := make([][]float64, c.K.H)
	for h := range left {
		a, x := heapAges(s.M), before[h]
		a.pending = x.pendingLogDecay
		rate := func(j int) float64 { return 0 }
		if c.HasDecay() {
			g := c.LogG.At(s.Batch, h)
			rate = func(j int) float64 { return float64(g.Row(s.K0 + j)[0]) }
		}
		enters := func(j int) float64 { return 1 }
		if c.HasDecay() && e.spec.Gated {
			enters = func(j int) float64 { return -math.Expm1(rate(j)) }
		}
		keys := make([]float64, s.M+1) // those before each, where all pairs are kept
		for j := range s.M {
			exists := mask == nil || mask[j]
			keys[j] = x.count
			if a.add(rate(j), exists); exists {
				x.add(a.sumBetween(j-1, j), enters(j))
			}
		}
		keys[s.M] = x.count
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
				left[h][i] += enters(j) * math.Exp(a.sumBetween(j, last))
			}
		}
	}
	return left
}

// countWeakRows counts the queries that see no key and those whose denominator nearly
// cancels, or has vanished.
func (e conditioning[T]) countWeakRows(c *Call[T], seqs []Sequence, seg segment[T], keep *Saved[T], vanished bool) {
	for i := range seqs {
		s := &seqs[i]
		var mask []bool
		if c.KeyMask != nil {
			mask = c.KeyMask[s.Batch*c.K.N+s.K0:][:s.M]
		}
		sound := e.isWellConditioned(c.Q.D) && !vanished // no denominator cancels
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
		longest := e.longestKeys(c, s, mask)
		var left [][]float64
		if (c.hasFadingKeys() || c.Init != nil) && !sound {
			before := make([]priorKeys, c.K.H)
			for h := range before {
				if seg == nil {
					break
				}
				before[h] = seg.earlier(i*c.K.H + h)
				if longest != nil {
					longest[h] = max(longest[h], before[h].longest)
				}
			}
			left = e.countEffectiveKeys(c, s, mask, before)
		}
		most := make([]float64, c.Q.H)
		if !sound && longest == nil { // the same of all queries
			for h := range most {
				most[h] = e.largestWeight(c.Q.D, e.boundScore(c, s, nil, h, 0))
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
					most[h] = e.largestWeight(c.Q.D, e.boundScore(c, s, longest, h, i))
				}
				if isIllConditioned(den, keys, most[h]) {
					if keep.WeakCount == 0 {
						keep.WeakAt = [3]int{s.Batch, h, s.Q0 + i}
					}
					keep.WeakCount++
				}
			}
		}
	}
}
