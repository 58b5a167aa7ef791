package mechanism

import (
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/tensor"
)

// Truncation is what a head of fastmax-truncated makes of queries, keys and values.
// Outputs are compared with those of the exponential of the same scores: errors are
// ‖o - o'‖/‖o'‖ over the tokens looked at.
type Truncation struct {
	Head          int     `json:"head"` // of queries
	Monomials     int     `json:"keep"` // monomials
	AllMonomials  int     `json:"of"`   // as many as T_p has
	Error         float64 `json:"error"`
	PlainError    float64 `json:"plain_error"`    // of T_2, all of it
	WholeError    float64 `json:"whole_error"`    // of T_p, all of it
	LostError     float64 `json:"lost"`           // ‖o - o'‖/‖o'‖ with o' by T_p, all of it
	NegativeShare float64 `json:"negative"`       // share of weights below 0
	MaxDropped    float64 `json:"dropped"`        // largest |T_p(s) - weight| of a pair
	Bound         float64 `json:"bound"`          // that it cannot exceed
	MaxWeight     float64 `json:"largest_weight"` // largest T_p(s) of a pair, to compare
}

// MeasureTruncation judges a fastmax-truncated mechanism by the first 512 tokens of a
// call's sequences, and of as many of these as there are 512 tokens in, in float64.
//
// With φ of all monomials that were dropped, a pair's dropped part is φ(q)·φ(k),
// and Bound is max|φ(q)|·max|φ(k)| over queries and keys. |φ(x)|² is T_p(x·x) less
// the squares of the features kept, so that no dropped monomial is looked at.
func MeasureTruncation[T tensor.Float](m attention.Mechanism[T], c *attention.Call[T]) (list []Truncation, err error) {
	t, err := readTruncation(m)
	if err != nil {
		return nil, err
	}
	q, k, err := attention.Prepared(m, c)
	if err != nil {
		return nil, err
	}
	off := 0
	if c.Causal {
		off = k.N - q.N
	}
	nq := min(q.N, maxJudgedTokens)
	nk := min(k.N, maxJudgedTokens+max(off, 0))
	group := q.H / k.H
	for h := range q.H {
		at := 0
		if t.heads > 1 {
			at = h / group * group
		}
		r, monomials := make([]float64, t.d*t.d), t.list[at*t.keep*t.degree:][:t.keep*t.degree]
		for i := range r {
			r[i] = float64(t.rotation[at*t.d*t.d+i])
		}
		p := &truncationComparison{d: t.d, degree: t.degree, dv: c.V.D, causal: c.Causal, off: off}
		p.Head, p.Monomials, p.AllMonomials = h, t.keep, monomialCount(t.d, t.degree)
		for b := 0; b < q.B && b*nq < maxJudgedTokens; b++ {
			p.x, p.y, p.values = rowsOfHead(q, b, h, nq), rowsOfHead(k, b, h/group, nk), rowsOfHead(c.V, b, h/group, nk)
			balanceLengths(p.x, p.y)
			var worst [2]float64
			p.fx, worst[0] = keptFeatures(projectOnAxes(r, p.x, t.d), p.x, monomials, t.d, t.degree)
			p.fy, worst[1] = keptFeatures(projectOnAxes(r, p.y, t.d), p.y, monomials, t.d, t.degree)
			p.Bound = max(p.Bound, worst[0]*worst[1])
			p.addSequence()
		}
		list = append(list, p.result())
	}
	return list, nil
}

func rowsOfHead[T tensor.Float](x tensor.Heads[T], b, h, n int) (rows []float64) {
	for i := range n {
		for _, v := range x.At(b, h).Row(i) {
			rows = append(rows, float64(v))
		}
	}
	return rows
}

// balanceLengths makes rows x and y as long as each other in the mean, and keeps their
// products: bounds are the better for it.
func balanceLengths(x, y []float64) {
	ratio := math.Sqrt(euclideanNorm(y) * math.Sqrt(float64(len(x))) / (euclideanNorm(x) * math.Sqrt(float64(len(y)))))
	if !(ratio > 0) || math.IsInf(ratio, 0) {
		return
	}
	for i := range x {
		x[i] *= ratio
	}
	for i := range y {
		y[i] /= ratio
	}
}

// keptFeatures returns the features of tokens, x^a/√a!, from their components
// [d, n] along the axes, and the largest norm of those dropped, from their rows.
func keptFeatures[T tensor.Float](components, rows []float64, monomials []T, d, degree int) (features [][]float64, dropped float64) {
	n := len(rows) / d
	for i := range n {
		var f []float64
		row := rows[i*d:][:d]
		rest := evalPolynomial(taylorCoefs(degree), euclideanNorm(row)*euclideanNorm(row))
		for at := 0; at < len(monomials); at += degree {
			x, factors := 1.0, [maxTruncatedOrder]int{}
			l := 0
			for ; l < degree && monomials[at+l] > 0; l++ {
				factors[l] = int(monomials[at+l])
				x *= components[(factors[l]-1)*n+i]
			}
			x /= math.Sqrt(factorialProduct(factors[:l]))
			rest -= x * x
			f = append(f, x)
		}
		features = append(features, f)
		dropped = max(dropped, math.Sqrt(max(rest, 0)))
	}
	return features, dropped
}

// truncationComparison is of all pairs of queries x and keys y of a head, with their features.
type truncationComparison struct {
	d, degree, dv int
	x, y, values  []float64
	fx, fy        [][]float64
	causal        bool
	off           int

	// Sums over all sequences looked at.
	Truncation
	pairs, negativePairs  float64
	outputSize, wholeSize float64 // of outputs
	errors                [3]float64
	lostSize              float64
}

// addSequence adds every pair of a sequence.
func (p *truncationComparison) addSequence() {
	plain, whole := taylorCoefs(2), taylorCoefs(p.degree)
	for i, f := range p.fx {
		seen := len(p.fy)
		if p.causal {
			seen = min(max(i+p.off+1, 0), seen)
		}
		if seen == 0 {
			continue
		}
		var weights, sums [4][]float64
		var total [4]float64
		for w := range weights {
			weights[w], sums[w] = make([]float64, seen), make([]float64, p.dv)
		}
		scores, top := make([]float64, seen), math.Inf(-1)
		for j := range seen {
			for c, a := range p.x[i*p.d:][:p.d] {
				scores[j] += a * p.y[j*p.d+c]
			}
			top = max(top, scores[j])
		}
		for j, s := range scores {
			kept := 0.0
			for r, a := range f {
				kept += a * p.fy[j][r]
			}
			all := evalPolynomial(whole, s)
			weights[0][j], weights[1][j], weights[2][j], weights[3][j] = kept, evalPolynomial(plain, s), all, math.Exp(s-top)
			p.pairs++
			if kept < 0 {
				p.negativePairs++
			}
			p.MaxDropped, p.MaxWeight = max(p.MaxDropped, math.Abs(all-kept)), max(p.MaxWeight, all)
		}
		for w := range weights {
			for j, a := range weights[w] {
				total[w] += a
				for c, v := range p.values[j*p.dv:][:p.dv] {
					sums[w][c] += a * v
				}
			}
		}
		for c, o := range sums[3] {
			o /= total[3]
			p.outputSize += o * o
			for w := range p.errors {
				e := sums[w][c]/total[w] - o
				p.errors[w] += e * e
			}
			o := sums[2][c] / total[2]
			e := sums[0][c]/total[0] - o
			p.lostSize, p.wholeSize = p.lostSize+e*e, p.wholeSize+o*o
		}
	}
}

// result turns the sums into shares.
func (p *truncationComparison) result() Truncation {
	t := p.Truncation
	if p.pairs > 0 {
		t.NegativeShare = p.negativePairs / p.pairs
	}
	if p.outputSize > 0 {
		t.Error, t.PlainError, t.WholeError = math.Sqrt(p.errors[0]/p.outputSize), math.Sqrt(p.errors[1]/p.outputSize), math.Sqrt(p.errors[2]/p.outputSize)
	}
	if p.wholeSize > 0 {
		t.LostError = math.Sqrt(p.lostSize / p.wholeSize)
	}
	return t
}
