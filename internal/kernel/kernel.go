// Package kernel holds the numerical routines of the library: matrix tiles, and row operations such as
// exp, polynomials, GELU, layer norm and AdamW. It has no goroutines, allocation or policy.
//
// A Table holds the routines of one instruction set; Active returns the best of this machine. Every
// Table computes each element of a product as one sequence of fused multiply-adds over k; the pure Go
// Table rounds each product. Its bits hold for one architecture, with or without FMA, as the compiler and
// package math choose by both. The bits of an element do not depend on its position in the matrix or on
// the sizes of the matrix.
package kernel

import "github.com/farfield-ml/farfield/rng"

//go:generate go -C _asm run . -dir ..

// Float constrains element types: float32 is fast, float64 runs in pure Go.
type Float interface{ float32 | float64 }

// Lanes is the granularity of columns in Block: n is a multiple of Lanes on every instruction set, so
// padded buffers suit all of them.
const Lanes = 16

// Pad returns n rounded up to a multiple of Lanes.
func Pad(n int) int { return (n + Lanes - 1) &^ (Lanes - 1) }

// Table holds the routines of one instruction set. The vectors of a call have the length of dst, or of
// x without dst; other slices may be longer. Unless stated otherwise, dst may be x or y, but must not
// overlap them in part. Routines panic on slices that are too short.
type Table[T Float] struct {
	Name string // "avx512", "avx2", "neon" or "generic"

	// Block computes C = A·B, or C += A·B when acc is set, for C [m,n],
	// A [m,k], B [k,n] and n a multiple of Lanes. Element (i,p) of A is
	// a[i*ars+p*acs] (so A may be a transpose); rows of B and C are
	// contiguous with strides brs and crs. C does not overlap A or B.
	// With acc the product is summed from zero first, then added.
	Block func(m, n, k int, a []T, ars, acs int, b []T, brs int, c []T, crs int, acc bool)

	// Tiles is Block for acs = 1 on the first rows and columns of C that are complete tiles;
	// it returns their numbers. It adds bias [n] to them, unless bias is nil. Meanwhile it
	// prefetches ahead into the second-level cache and returns the rest that it did not
	// reach. Where PanelWidth is given it prefetches B and, of ahead, k lines, but returns
	// all of it. nil: the instruction set has no such tiles.
	Tiles func(m, n, k int, a []T, ars int, b []T, brs int, c []T, crs int, acc bool, bias, ahead []T) (rows, cols int, rest []T)

	// PanelWidth is the number of columns of a panel of Panels, a multiple of Lanes that divides
	// PanelColumns; 0: PanelColumns.
	PanelWidth int

	// Transpose sets dst[j*drs+i] = src[i*srs+j] for i < rows, j < cols.
	Transpose func(dst []T, drs int, src []T, srs, rows, cols int)

	Axpy   func(dst []T, a T, x []T) // dst += a·x
	Scale  func(dst []T, a T, x []T) // dst = a·x
	Add    func(dst, x, y []T)       // dst = x + y
	Mul    func(dst, x, y []T)       // dst = x∘y
	MulAdd func(dst, x, y []T)       // dst += x∘y
	// AddCarry adds x to the sums hi + lo. It sets hi to their roundings and lo to the
	// rounding errors. A sum that is not finite becomes NaN. The three do not overlap.
	AddCarry func(hi, lo, x []T)
	// SwapCarry is AddCarry, and sets x to the previous hi.
	SwapCarry func(hi, lo, x []T)

	Dot func(x, y []T) T // Σ x·y
	Sum func(x []T) T    // Σ x
	Max func(x []T) T    // max x; -Inf for an empty x, NaN if x holds one

	// TopTwo looks for the largest numbers x_r[j] - y[j] of rows x_r, which lie xrs apart, for j < n,
	// a multiple of Lanes. Of the numbers of each lane l = j mod Lanes it raises best[r·Lanes+l] to
	// the largest, whose place first+j goes to at[r·Lanes+l], and next[r·Lanes+l] to the largest of the
	// others: what was in best and next counts among them. Of equal numbers the first is the largest. Rows are
	// len(best)/Lanes. No number is NaN. Nothing overlaps.
	TopTwo func(x []T, xrs, n int, y []T, first int, best, next []T, at []int32)

	// Exp sets dst = exp(x - shift) and returns the sum of dst. The difference
	// is rounded; its exp is within 2 units in the last place, and may be zero
	// where that is below the smallest normal number.
	Exp func(dst, x []T, shift T) T
	// ExpRows sets the first n elements of rows x_r, which lie xrs apart, to
	// 2^(factor·x - shift[r]), for r < len(shift), and adds their sum to sum[r].
	// The power is rounded once; 2 to it is within 2 units in the last place, or
	// off by half the smallest normal number at most where it is below that.
	ExpRows func(x []T, xrs, n int, factor T, shift, sum []T)
	// PolyRows sets the first n elements of rows dst_r to Σ_l coef[l]·x^l, for
	// r < len(sum), and adds their sum to sum[r]; rows of dst and x lie rs apart.
	PolyRows func(dst, x []T, rs, n int, coef, sum []T)
	// MulRows sets the first n elements of rows dst_r to (dst_r + a[r])∘x_r, for
	// r < len(a).
	MulRows func(dst, x []T, rs, n int, a []T)
	// ScaleRows sets the first n elements of rows dst_r to a[r]·x_r, for
	// r < len(a); rows lie drs and xrs apart.
	ScaleRows func(dst []T, drs int, x []T, xrs, n int, a []T)

	// MixRows sets the first n elements of rows dst_r to a[r]·x_r + b[r]·y_r, for
	// r < len(a); rows lie drs, xrs and yrs apart.
	MixRows func(dst []T, drs int, x []T, xrs int, a, y []T, yrs int, b []T, n int)
	// ClearRows sets the first n elements of rows x_r, which lie xrs apart, to 0 for
	// r < rows.
	ClearRows func(x []T, xrs, rows, n int)

	// AddRows sets the first n elements of rows dst_r to x_r + y_r, for r < rows;
	// rows lie drs, xrs and yrs apart. With yrs = 0 one row y is added to all.
	AddRows func(dst []T, drs int, x []T, xrs int, y []T, yrs, rows, n int)
	// SumRows adds rows x_r of len(sum) elements, which lie xrs apart, to sum for
	// r < rows, one after another as Add does.
	SumRows func(sum, x []T, xrs, rows int)
	// RowDots sets dst[r] to Dot of the first n elements of rows x_r and y_r.
	RowDots func(dst, x []T, xrs int, y []T, yrs, n int)

	// GELU is the tanh form (Hendrycks and Gimpel 2016, section 2):
	// dst = x/2·(1 + tanh(√(2/π)(x + 0.044715x³))).
	GELU func(dst, x []T)
	// GELUGrad sets dx = dy∘GELU'(x).
	GELUGrad func(dx, dy, x []T)

	// ErfGELU is the exact form (the same, section 1), dst = x·Φ(x) with the normal
	// distribution's Φ, within 7 units in the last place. Where e^(-x²/2) is below
	// the smallest normal number it may be max(x, 0), which it is at -Inf and +Inf.
	ErfGELU func(dst, x []T)
	// ErfGELUGrad sets dx = dy∘(Φ(x) + x·φ(x)): the factor within 4 units in the
	// last place of the larger part, and 0 or 1 where e^(-x²/2) is that small.
	ErfGELUGrad func(dx, dy, x []T)

	// EluPlusOne sets dst = x + 1 where x > 0, and e^x elsewhere.
	EluPlusOne func(dst, x []T)
	// EluPlusOneGrad sets dx = dy where x > 0, and dy∘e^x elsewhere.
	EluPlusOneGrad func(dx, dy, x []T)

	// LayerNorm normalises the first n elements of rows x_r, for r < rows:
	// dst_r = (x_r - mean)·rstd∘gain + bias with rstd = 1/√(var + eps) and the
	// population variance. It sets stats[2r] to the mean and stats[2r+1] to rstd.
	// Rows lie drs and xrs apart. A nil bias is zero.
	LayerNorm func(dst []T, drs int, x []T, xrs, rows, n int, gain, bias, stats []T, eps T)
	// LayerNormGrad adds to the first n elements of rows dx_r, and row after row to
	// dgain and dbias (unless nil), the gradients for dy, the gradient of LayerNorm's
	// output. The term added to dx is rounded first. dx does not overlap the others.
	LayerNormGrad func(dx []T, dxrs int, dgain, dbias, dy []T, dyrs int, x []T, xrs, rows, n int, gain, stats []T)

	// The columns of the following matrices are tokens; rows of x and dst lie
	// xrs and drs, or rs, apart. The result for a token depends on its column alone.

	// Products sets rows dst_r = w[r]·(p∘x_r) for r < len(w). Dst does not
	// overlap the others.
	Products func(dst []T, drs int, w, p, x []T, xrs int)
	// FeatureSums sets rows dst_f to the features of runs, one after another,
	// and sums[f] = Σ dst_f∘y. All rows of features have the stride ld.
	FeatureSums func(dst []T, runs []Run, p, x []T, ld int, y, sums []T)
	// FeatureDots sets rows dst_f to the features times w[f], and adds
	// z[f]·dst_f to sums, one after another.
	FeatureDots func(dst []T, runs []Run, p, x []T, ld int, w, z, sums []T)
	// FeatureGrad adds the gradients of the factors of features. With e_f = w[f]·(d_f +
	// z[f]·y), the gradient of len(y) columns of features, it adds e_f∘p_P to dx_X and
	// e_f∘x_X to dp_P. dx and dp may be one matrix.
	FeatureGrad func(dx, dp, d []T, runs []Run, p, x []T, ld int, w, z, y []T)
	// Dots sets dst[r] = Σ x_r∘w.
	Dots func(dst, x []T, xrs int, w []T)
	// Centre subtracts from each of n columns its mean. Equal numbers become
	// exactly zero.
	Centre func(x []T, rs, rows, n int)
	// Normalise gives each of n columns the 2-norm |length|, taken in float64.
	// A column whose norm is below 2⁻¹²⁶, or in float32 below 2⁻¹²⁷·|length|, becomes zero.
	Normalise func(x []T, rs, rows, n int, length T)
	// Standardise is Centre followed by Normalise, except for rounding: squares are summed
	// in float64 only if float32 cannot hold them.
	Standardise func(x []T, rs, rows, n int, length T)
	// NormaliseGrad overwrites dx, the gradient of normalised columns, with the gradient of
	// the columns x before: dx = length/|x|·(dx - x·(x·dx)/|x|²), or zero where
	// Normalise gives zero.
	NormaliseGrad func(dx, x []T, rs, rows, n int, length T)
	// Reflect reflects n columns of mean 0 so that their last number is 0: the reflection
	// maps (1, …, 1) to the last axis. It preserves inner products.
	Reflect func(x []T, rs, rows, n int)
	// ReflectGrad overwrites the gradient of reflected columns, without their last number,
	// with the gradient of the columns before.
	ReflectGrad func(dx []T, rs, rows, n int)
	// Rotate rotates each pair of rows x_r, y_r of n columns to x∘cos - y∘sin
	// and y∘cos + x∘sin; rows of cos and sin lie cs apart.
	Rotate func(x, y []T, rs int, cos, sin []T, cs, rows, n int)

	// Mix adds to c the sum of rows b_p, of stride brs, weighted by a[p], and returns total
	// plus Σ a·z, unless z is nil. Sums begin at zero every step rows, as in Block with acc.
	// The length of c is a multiple of Lanes.
	Mix func(c, a []T, step int, b []T, brs int, z []T, total T) T
	// Renew reads and updates states for count tokens in order. Token i has rows c, y [n]
	// and a, q, x [k], with strides crs, yrs and ars, and a state b [k,n] of stride brs and
	// z [k]. States lie next elements apart; next of 0 means one state for all tokens. With
	// weight = c0 + c1·Σ q∘x it sets c = weight·y + Σ_p a[p]·b_p, w[i] = weight and
	// totals[i] = weight + Σ a·z. It then adds x[p]·y to b_p and x[p] to z[p]. Sums begin at
	// zero, as in Mix with one step; n is a multiple of Lanes. Nothing overlaps except one
	// shared state.
	Renew func(count, n, k int, c []T, crs int, a, q, x []T, ars int, y []T, yrs int, b []T, brs int, z []T, next int, c0, c1 T, totals, w []T)
	// FeatureRow sets dst to products of the components x of one token, run by run:
	// w∘((s·x[r])·x[r:]) for r < rows, each with the next part of w. It may write up to
	// Lanes-1 elements beyond dst, and read that number beyond w and x. dst does not overlap
	// the others.
	FeatureRow func(dst, w []T, s T, x []T, rows int)

	// Uniform sets dst[16·j+4·w+b] to factor·(2x - 255), x being byte b of word w of
	// number i+j of key (rng.Key.Uint32s).
	Uniform func(dst []T, factor T, key rng.Key, i uint64)

	search *byteSearch[T] // nil: none

	// AdamW updates the weights w and moments m, v from the gradient g.
	AdamW func(w, g, m, v []T, s *AdamWStep[T])
}

// Run is a run of N > 0 features with a common factor: row P of a matrix p times rows X to X+N-1 of a
// matrix x.
type Run struct{ P, X, N int32 }

// countFeatures returns the number of features of runs, and the numbers of rows of p and x that they
// use. It panics on invalid runs.
func countFeatures(runs []Run) (count, p, x int) {
	for _, r := range runs {
		if r.N <= 0 || r.P < 0 || r.X < 0 {
			panic(errRun)
		}
		count += int(r.N)
		p, x = max(p, int(r.P)+1), max(x, int(r.X+r.N))
	}
	return count, p, x
}

const errRun = "kernel: a run without features, or of rows before the first"

// AdamWStep holds the numbers of one AdamW step (Loshchilov and Hutter 2019,
// algorithm 2). With g' = GradScale·g:
//
//	m = Beta1·m + (1-Beta1)·g'
//	v = Beta2·v + (1-Beta2)·g'²
//	w = w - Rate·( (m·Correct1) / (√(v·Correct2) + Eps) + Decay·w )
//
// where Correct_i = 1/(1-Beta_i^t).
type AdamWStep[T Float] struct {
	Rate, Beta1, Beta2, Eps, Decay T
	Correct1, Correct2, GradScale  T
}
