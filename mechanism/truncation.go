package mechanism

import (
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/factorised"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// Truncation is the error of fastmax-truncated in one query head. Outputs are compared
// with softmax of the same scores: an error is ‖o - o'‖/‖o'‖ over the compared tokens.
type Truncation struct {
	Head          int     `json:"head"` // query head
	Monomials     int     `json:"keep"` // kept monomials
	AllMonomials  int     `json:"of"`   // all monomials of T_p
	Error         float64 `json:"error"`
	PlainError    float64 `json:"plain_error"`    // of all monomials of T_2
	WholeError    float64 `json:"whole_error"`    // of all monomials of T_p
	LostError     float64 `json:"lost"`           // ‖o - o'‖/‖o'‖ with o' of all monomials of T_p
	NegativeShare float64 `json:"negative"`       // share of weights below 0
	MaxDropped    float64 `json:"dropped"`        // largest |T_p(s) - weight| of a pair
	Bound         float64 `json:"bound"`          // upper bound of MaxDropped
	MaxWeight     float64 `json:"largest_weight"` // largest T_p(s) of a pair, for comparison
}

// MeasureTruncation compares a fastmax-truncated mechanism with softmax on a call, in
// float64, and returns one Truncation for each query head. It takes the first 512
// tokens of each sequence, and sequences until there are 512 tokens.
//
// The dropped part of a pair is φ(q)·φ(k), with φ the features of all dropped
// monomials. Bound is max|φ(q)|·max|φ(k)| over queries and keys. |φ(x)|² is T_p(x·x)
// minus the squares of the kept features, which avoids evaluating the dropped monomials.
//
// It returns an error if m is not fastmax-truncated or if the call does not fit m.
func MeasureTruncation(m attention.Mechanism, c *attention.Call) (list []Truncation, err error) {
	t, err := readTruncation(m)
	if err != nil {
		return nil, err
	}
	q, k, err := factorised.Prepared(m, c)
	if err != nil {
		return nil, err
	}
	if k.H == 0 {
		return nil, nil
	}
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
		p := &truncationComparison{d: t.d, degree: t.degree, dv: c.V.D}
		p.Head, p.Monomials, p.AllMonomials = h, t.keep, monomialCount(t.d, t.degree)
		tokens := 0
		for _, s := range c.Sequences() {
			if tokens >= maxJudgedTokens {
				break
			}
			nq, nk := min(s.N, maxJudgedTokens), min(s.M, maxJudgedTokens)
			if c.Causal {
				nk = min(s.M, maxJudgedTokens+max(s.Offset, 0))
			}
			tokens += nq
			mask := c.Mask(&s)
			p.sees = func(i, j int) bool {
				return (!c.Causal || j <= i+s.Offset) && (mask == nil || mask[j]) && (c.AttnKeep == nil || c.AttnKeep[i*k.N+j])
			}
			p.x, p.y, p.values = rowsOfHead(q, s.Batch, h, s.Q0, nq), rowsOfHead(k, s.Batch, h/group, s.K0, nk), rowsOfHead(c.V, s.Batch, h/group, s.K0, nk)
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

// rowsOfHead returns the n rows from i0 on of head h of batch row b, in float64.
func rowsOfHead(x tensor.Heads, b, h, i0, n int) (rows []float64) {
	for i := range n {
		for _, v := range x.Head(b, h).Row(i0 + i) {
			rows = append(rows, float64(v))
		}
	}
	return rows
}

// balanceLengths scales rows x and y to equal mean lengths and leaves their products as
// they are, which makes Bound smaller.
func balanceLengths(x, y []float64) {
	ratio := math.Sqrt(scratch.Norm2(y) * math.Sqrt(float64(len(x))) / (scratch.Norm2(x) * math.Sqrt(float64(len(y)))))
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

// keptFeatures returns the features x^a/√a! of tokens, and the largest norm of the
// dropped features. components [d, n] are the tokens along the axes, rows [n, d] the
// tokens.
func keptFeatures(components, rows []float64, monomials []float, d, degree int) (features [][]float64, dropped float64) {
	n := len(rows) / d
	for i := range n {
		var f []float64
		row := rows[i*d:][:d]
		rest := evalPolynomial(taylorCoefs(degree), scratch.Norm2(row)*scratch.Norm2(row))
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

// truncationComparison compares all pairs of queries x and keys y of a head.
type truncationComparison struct {
	d, degree, dv int
	x, y, values  []float64
	fx, fy        [][]float64
	sees          func(i, j int) bool // query i sees key j

	// Sums over all compared sequences.
	Truncation
	pairs, negativePairs  float64
	outputSize, wholeSize float64 // of outputs
	errors                [3]float64
	lostSize              float64
}

// addSequence adds every pair of a sequence to the sums.
func (p *truncationComparison) addSequence() {
	plain, whole := taylorCoefs(2), taylorCoefs(p.degree)
	var keys []int // that the query sees
	for i, f := range p.fx {
		keys = keys[:0]
		for j := range p.fy {
			if p.sees(i, j) {
				keys = append(keys, j)
			}
		}
		if len(keys) == 0 {
			continue
		}
		var weights, sums [4][]float64
		var total [4]float64
		for w := range weights {
			weights[w], sums[w] = make([]float64, len(keys)), make([]float64, p.dv)
		}
		scores, top := make([]float64, len(keys)), math.Inf(-1)
		for n, j := range keys {
			for c, a := range p.x[i*p.d:][:p.d] {
				scores[n] += a * p.y[j*p.d+c]
			}
			top = max(top, scores[n])
		}
		for n, s := range scores {
			kept := 0.0
			for r, a := range f {
				kept += a * p.fy[keys[n]][r]
			}
			all := evalPolynomial(whole, s)
			weights[0][n], weights[1][n], weights[2][n], weights[3][n] = kept, evalPolynomial(plain, s), all, math.Exp(s-top)
			p.pairs++
			if kept < 0 {
				p.negativePairs++
			}
			p.MaxDropped, p.MaxWeight = max(p.MaxDropped, math.Abs(all-kept)), max(p.MaxWeight, all)
		}
		for w := range weights {
			for n, a := range weights[w] {
				total[w] += a
				for c, v := range p.values[keys[n]*p.dv:][:p.dv] {
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

// result returns the sums as shares and errors.
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
