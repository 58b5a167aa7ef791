package headtask

import (
	"math"

	"github.com/farfield-ml/farfield/internal/arena"
)

// Decay multiplies the weight of key j for query i by exp(Σ_{j<t≤i} log_g_t), where query i has
// the position of key i + (M-N). The rows of keys cannot contain the factor, because a
// polynomial takes their powers. The direct form multiplies each weight by it. The linear form
// multiplies the values, the ones under them, and the moments. Every factor is the exponential
// of a sum that is at most 0, so no factor overflows.

// Slowest is the lower bound of sums of log_g. Its decay factor is 0.
const Slowest = -1e280

// LogDecay returns log_g of token j, or 0 without a decay.
func (u *Geometry) LogDecay(j int) float64 {
	if len(u.LogG.Data) == 0 {
		return 0
	}
	return float64(u.LogG.Row(j)[0])
}

// takeAges returns room for n tokens in scratch memory.
func (u *Task) takeAges(n int) *LogDecays {
	return newAges(n, func(n int) []float64 { return arena.Take[float64](u.Arena, n) })
}

// TakeDecays computes the log-decays of all keys, for the direct form.
func (u *Task) TakeDecays() {
	if len(u.LogG.Data) == 0 {
		return
	}
	u.Decays = u.takeAges(u.M)
	for j := range u.M {
		u.Decays.Add(u.LogDecay(j), u.HasKey(j))
	}
	if u.Keep == nil {
		return
	}
	u.places = make([]int, u.N)
	for i := range u.places {
		last := u.lastVisible(i)
		for j := last; j >= 0; j-- {
			if u.HasKey(j) && u.Keep[i*u.KeepRow+j] {
				last = j
				break
			}
		}
		u.places[i] = last
	}
}

// lastVisible returns the position of query i among the keys, at most the last key.
func (u *Geometry) lastVisible(i int) int { return min(u.CountVisible(i), u.M) - 1 }

// Pending returns the log-decay between the last visible key of query i and the query.
func (u *Task) Pending(i int) float64 {
	if u.Decays == nil {
		return 0
	}
	at := u.lastVisible(i)
	w := u.Decays.pendingAfter(at)
	if u.places != nil {
		w += u.Decays.SumBetween(u.places[i], at)
	}
	return w
}

// RelativeEps returns eps on the scale of weights relative to the last visible key, if the
// log-decay since that key is waits. It may be infinite; the output is 0 then.
func (u *Geometry) RelativeEps(waits float64) float {
	if waits == 0 || u.Spec.Eps == 0 {
		return float(u.Spec.Eps)
	}
	return float(u.Spec.Eps * math.Exp(-waits))
}

// This is how log_g gets its gradient. Let G_i be the sum of log_g up to position i, so that
// w_ij is proportional to exp(G_i - G_j). With dw_ij = do_i·(v_j - o_i)/g_i,
//
//	dG_i = Σ_j w_ij·dw_ij - Σ_l w_li·dw_li,  dlog_g_t = Σ_{i≥t} dG_i.
//
// The first sum is do_i·o_i·eps/g_i, because g_i = Σ_j w_ij + eps. The second sum is v_i·dv_i +
// Σ_l w_li·(-do_l·o_l)/g_l, where dv_i is already known.

// ageQueries adds to dG the part that comes from eps, for len(w) queries from i0 on.
func (u *Task) ageQueries(i0 int, w []float, waits func(i int) float64) {
	if u.Spec.Exp || u.Spec.Eps == 0 {
		return
	}
	for r, x := range w {
		if x != 0 {
			place := u.M // after all keys
			if u.Causal {
				place = i0 + r + u.Offset
			}
			u.DAge[place] -= float64(x) * float64(u.RelativeEps(waits(i0+r)))
		}
	}
}

// AgeKeys subtracts x from dG of the keys from j0 on.
func (u *Task) AgeKeys(j0 int, x []float) {
	for j, y := range x {
		u.DAge[j0+j] -= float64(y)
	}
}

// AgeGrad sets dlog_g, unless it is not wanted. dV must be complete. after is the sum of dG
// over the positions after the call; the result also includes the positions of the call. The
// gradient is 0 up to the first unmasked key, because nothing decays before it. seen says that
// there is an unmasked key before the call.
func (u *Task) AgeGrad(after float64, seen bool) (sum float64) {
	first := -1
	for first < u.M && !seen {
		first++
		seen = first < u.M && u.HasKey(first)
	}
	sum = after
	for j := len(u.DAge) - 1; j >= 0; j-- {
		sum += u.DAge[j]
		if j >= u.M {
			continue
		}
		if u.HasKey(j) {
			v := u.V.Row(j)
			for c, d := range u.DVal.Row(j) {
				if d != 0 { // otherwise no query has seen the value
					sum -= float64(d) * float64(v[c])
				}
			}
		}
		if u.DLogG.Rows == 0 {
			continue
		}
		own := 0.0
		if j > first {
			own = sum
		}
		if u.DGate != nil {
			own += u.DGate[j]
		}
		u.DLogG.Row(j)[0] = float(own)
	}
	return sum
}

// A state that has absorbed a decay keeps decaying: tokens without decay have log_g 0.

// If a call continues from a state, it depends on the decay of earlier tokens only through the
// state. The sum for dlog_g continues across the border between calls: with dG of all
// positions, including later calls,
//
//	dlog_g_t = Σ_{t≤i, i in the call} dG_i + Σ_{i after the call} dG_i.
//
// The second sum is one number for each key head, which is passed backward with the gradient of
// the state. In the first sum, later queries contribute to dG of a key in the same way as to
// the gradient of its value. For a key in the moments that is v·dv plus the gradient of the
// ones, as between chunks. For a key in the open chunk or in a cache it is the state's gradient
// of its value and of the one under it. Deferred log-decay needs no gradient of its own,
// because its tokens are before all these positions.
