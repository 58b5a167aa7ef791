// Package papercost evaluates the costs that FAST and TaylorShift publish: operations, numbers held at
// once, and the lengths from which one form is cheaper than another.
package papercost

import "math"

// Part is one term of a published cost.
type Part struct {
	What  string  `json:"what"`
	Count float64 `json:"count"`
}

// Parts is a published cost, term by term.
type Parts []Part

// Total returns the sum of the terms.
func (p Parts) Total() float64 {
	var sum float64
	for _, t := range p {
		sum += t.Count
	}
	return sum
}

// TaylorShift holds the published costs of one head of width d over n tokens (Nauen et
// al. 2024, TaylorShift, arXiv 2403.02920, section 4): floating-point operations,
// numbers held at once, and the lengths from which the efficient form has fewer of
// each.
type TaylorShift struct {
	OpsDirect        Parts `json:"ops_dir"`
	OpsEfficient     Parts `json:"ops_eff"`
	EntriesDirect    Parts `json:"entries_dir"`
	EntriesEfficient Parts `json:"entries_eff"`

	N0         float64 `json:"n0"`          // OpsDirect = OpsEfficient
	N0Bound    float64 `json:"n0_bound"`    // d² + d + ¾, not below N0
	N0Measured float64 `json:"n0_measured"` // N0 + 18d, where the paper's own programs cross over
	N1         float64 `json:"n1"`          // EntriesDirect = EntriesEfficient
	N1Bound    float64 `json:"n1_bound"`    // d²/2 + 2d + ½, not below N1
}

// TaylorShiftCost evaluates the published formulas:
//
//	ops_dir     = 4N²d + 6N²             ops_eff     = N(4d³ + 10d² + 9d + 4)
//	entries_dir = dN + 2N²               entries_eff = d²(d+1) + 2dN + (d+1)N + d²N
//	N0 = (4d³ + 10d² + 9d + 4)/(4d + 6)  N1 = (d² + 2d + 1 + √(d⁴ + 12d³ + 14d² + 4d + 1))/4
//
// The paper's table rounds N0 and N1 up; the calculator on its page prints the
// bounds.
func TaylorShiftCost(n, d int) TaylorShift {
	N, D := float64(n), float64(d)
	return TaylorShift{
		OpsDirect: Parts{
			{"QKᵀ", 2 * N * N * D},
			{"x²/2 + x + 1 of each score", 4 * N * N},
			{"normalisation", 2 * N * N},
			{"times V", 2 * N * N * D},
		},
		OpsEfficient: Parts{
			{"K⊠K and Q⊠Q", 2 * N * D * D},
			{"(K⊠K)ᵀV", 2 * N * D * D * (D + 1)},
			{"(Q⊠Q)·(K⊠K)ᵀV", 2 * N * D * D * (D + 1)},
			{"Q(KᵀV)", 4 * N * D * (D + 1)},
			{"column sums of V", N * (D + 1)},
			{"sums and factors", 3 * N * (D + 1)},
			{"normalisation", N * D},
		},
		EntriesDirect: Parts{
			{"V", D * N},
			{"QKᵀ", N * N},
			{"result", N * N},
		},
		EntriesEfficient: Parts{
			{"(K⊠K)ᵀV", D * D * (D + 1)},
			{"Q and K", 2 * D * N},
			{"V and a column of ones", (D + 1) * N},
			{"K⊠K", D * D * N},
		},
		N0:         taylorShiftN0(D),
		N0Bound:    D*D + D + 0.75,
		N0Measured: taylorShiftN0(D) + 18*D,
		N1:         (D*D + 2*D + 1 + math.Sqrt(D*D*D*D+12*D*D*D+14*D*D+4*D+1)) / 4,
		N1Bound:    D*D/2 + 2*D + 0.5,
	}
}

func taylorShiftN0(d float64) float64 { return (4*d*d*d + 10*d*d + 9*d + 4) / (4*d + 6) }

// TaylorShiftHeads returns the published costs of the efficient form of TaylorShift for
// h heads of width w/h over n tokens, where w is width:
//
//	ops     = N(4w³/h² + 10w²/h + 9w + 4h)
//	entries = w³/h² + (N+1)w²/h + 3Nw + Nh
//
// Both fall with every further head up to h = w.
func TaylorShiftHeads(n, width, h int) (ops, entries float64) {
	N, w, H := float64(n), float64(width), float64(h)
	ops = N * (4*w*w*w/(H*H) + 10*w*w/H + 9*w + 4*H)
	entries = w*w*w/(H*H) + (N+1)*w*w/H + 3*N*w + N*H
	return ops, entries
}

// FastOrders holds the orders of the costs that Gerami et al. 2024 (FAST, arXiv 2402.07901,
// sections 2.4 and 2.5) state for Fastmax: the leading terms without their constants.
type FastOrders struct {
	Time         float64 `json:"time"`          // ND^(p+1), causal or not
	Memory       float64 `json:"memory"`        // ND^p + D^(p+1), unmasked, by automatic differentiation
	CausalMemory float64 `json:"causal_memory"` // ND^(p+1): the sums of every prefix are kept
	// GradientPrinted is ND^(p-1), the memory with hand-written gradients that the end of
	// section 2.5 states. The arrays that this section keeps, q̂, k̂, v, F and G, take
	// GradientMemory, which is ND for any p. The two agree for p = 2 only.
	GradientPrinted float64 `json:"gradient_memory_printed"`
	GradientMemory  float64 `json:"gradient_memory"`
}

// FastCost returns the costs that the paper states as orders, for h heads of width d
// over n tokens at degree p.
func FastCost(n, d, h, p int) FastOrders {
	N, D, H := float64(n), float64(d), float64(h)
	pow := func(e int) float64 { return math.Pow(D, float64(e)) }
	return FastOrders{
		Time:            H * N * pow(p+1),
		Memory:          H * (N*pow(p) + pow(p+1)),
		CausalMemory:    H * N * pow(p+1),
		GradientPrinted: H * N * pow(p-1),
		GradientMemory:  H * N * D,
	}
}

// TrainingFLOPs returns the operations of training by the rule of Brown et al. 2020
// (GPT-3, arXiv 2005.14165, appendix D): 6 for each parameter and token, 2 of them
// forward. In an encoder-decoder a token meets half of the parameters, which gives 3.
func TrainingFLOPs(parameters, tokens float64, encoderDecoder bool) float64 {
	if encoderDecoder {
		return 3 * parameters * tokens
	}
	return 6 * parameters * tokens
}

// PFDay is the number of operations in a petaFLOP/s-day: one day at 10¹⁵ a second.
const PFDay = 1e15 * 24 * 60 * 60
