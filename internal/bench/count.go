package bench

import "github.com/farfield-ml/farfield/attention"

// LinearFLOPs counts the useful operations of the linear form, forward. M tokens are added to the
// moments and N read them; each multiplies F features by Dv values and a denominator, which gives
// 4NF(Dv+1) a head if N = M. A causal call counts the same: what it computes in addition within
// chunks is a price of the order, and not useful.
func LinearFLOPs(s attention.Shape, f int) float64 {
	tokens := float64(s.B) * (float64(s.H)*float64(s.N) + float64(s.Hkv)*float64(s.M))
	return 2 * tokens * float64(f) * float64(s.Dv+1)
}

// DirectFLOPs counts the useful operations of the direct form, forward: 2NM(D+Dv) a head, or half
// of it if the call is causal and N = M.
func DirectFLOPs(s attention.Shape) float64 {
	n, m := float64(s.N), float64(s.M)
	pairs := n * m
	if s.Causal {
		k := min(n, m) // queries that see keys
		pairs = k*m - k*k/2
	}
	return 2 * float64(s.B*s.H) * pairs * float64(s.D+s.Dv)
}

// gemmFLOPs counts a product of [n,d] and [d,m].
func gemmFLOPs(n, m, d int) float64 { return 2 * float64(n) * float64(m) * float64(d) }
