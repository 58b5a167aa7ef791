// Package kernel holds the numerical routines that everything else is made
// of: matrix tiles, and row operations such as exp, polynomials, GELU, layer
// norm and AdamW. There are no goroutines, no allocation and no policy here.
//
// A Table is one instruction set's set of routines; Active returns the best
// that this machine has. Every Table computes each element of a product as one
// sequence of fused multiply-adds over k (the pure Go one rounds the product),
// so an element's bits do not depend on where in the matrix it lies, nor on
// the sizes of the matrix.
package kernel

import "github.com/farfield-ml/farfield/rng"

//go:generate go -C _asm run . -dir ..

// Float is the set of element types: float32 is the fast path, float64 the
// exact one, served by the pure Go routines.
type Float interface{ float32 | float64 }

// Lanes is the number of columns that Block works in: its n is a multiple of
// Lanes on every instruction set, so buffers padded to it suit them all.
const Lanes = 16

// Pad returns n rounded up to a multiple of Lanes.
func Pad(n int) int { return (n + Lanes - 1) &^ (Lanes - 1) }

// Table is one instruction set's routines. Vectors of one call have the length
// of dst (or of x where there is no dst); the others may be longer. Unless a
// routine says otherwise dst may be x or y itself, but must not overlap them
// in part. Routines panic on slices that are too short.
type Table[T Float] struct {
	Name string // "avx512", "avx2", "neon" or "generic"

	// Block computes C = A·B, or C += A·B when acc is set, for C [m,n],
	// A [m,k], B [k,n] and n a multiple of Lanes. Element (i,p) of A is
	// a[i*ars+p*acs] (so A may be a transpose); rows of B and C are
	// contiguous with strides brs and crs. C does not overlap A or B.
	// With acc the product is summed from zero first, then added.
	Block func(m, n, k int, a []T, ars, acs int, b []T, brs int, c []T, crs int, acc bool)

	// Tiles is Block for acs = 1 and so many of the first rows and columns of C as whole
	// tiles have. To these it adds bias [n], unless it is nil. While it goes it asks for
	// the memory ahead, to have it in the second-level cache, and returns what it had no
	// time for. nil: none.
	Tiles func(m, n, k int, a []T, ars int, b []T, brs int, c []T, crs int, acc bool, bias, ahead []T) (rows, cols int, rest []T)

	// Transpose sets dst[j*drs+i] = src[i*srs+j] for i < rows, j < cols.
	Transpose func(dst []T, drs int, src []T, srs, rows, cols int)

	Axpy   func(dst []T, a T, x []T) // dst += a·x
	Scale  func(dst []T, a T, x []T) // dst = a·x
	Add    func(dst, x, y []T)       // dst = x + y
	Mul    func(dst, x, y []T)       // dst = x∘y
	MulAdd func(dst, x, y []T)       // dst += x∘y
	// AddCarry adds x to the sums hi + lo and leaves in hi their roundings, in lo
	// what those leave out. A sum that is not finite becomes NaN. The three do
	// not overlap.
	AddCarry func(hi, lo, x []T)
	// SwapCarry is AddCarry, and leaves in x what hi was.
	SwapCarry func(hi, lo, x []T)

	Dot func(x, y []T) T // Σ x·y
	Sum func(x []T) T    // Σ x
	Max func(x []T) T    // max x; -Inf for an empty x, NaN if x holds one

	// Exp sets dst = exp(x - shift) and returns the sum of dst. The difference
	// is rounded; its exp is within 2 units in the last place, and may be zero
	// where that is below the smallest normal number.
	Exp func(dst, x []T, shift T) T
	// ExpRows sets the first n elements of rows x_r, which lie xrs apart, to
	// 2^(factor·x - shift[r]), for r < len(shift), and adds their sum to sum[r].
	// The power is rounded once; 2 to it is within 2 units in the last place, and
	// may be zero where that is below the smallest normal number.
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
	// dgain and dbias (nil is skipped), from the gradient dy of what LayerNorm made
	// of x. What it adds to dx is rounded first. Dx does not overlap the others.
	LayerNormGrad func(dx []T, dxrs int, dgain, dbias, dy []T, dyrs int, x []T, xrs, rows, n int, gain, stats []T)

	// The columns of the following matrices are tokens; rows of x and dst lie
	// xrs and drs, or rs, apart. What becomes of a token depends on its column
	// alone.

	// Products sets rows dst_r = w[r]·(p∘x_r) for r < len(w). Dst does not
	// overlap the others.
	Products func(dst []T, drs int, w, p, x []T, xrs int)
	// FeatureSums sets rows dst_f to the features of runs, one after another,
	// and sums[f] = Σ dst_f∘y. All rows of features have the stride ld.
	FeatureSums func(dst []T, runs []Run, p, x []T, ld int, y, sums []T)
	// FeatureDots sets rows dst_f to the features times w[f], and adds
	// z[f]·dst_f to sums, one after another.
	FeatureDots func(dst []T, runs []Run, p, x []T, ld int, w, z, sums []T)
	// FeatureGrad turns e_f = w[f]·(d_f + z[f]·y), the gradient of len(y)
	// columns of features, into that of their factors: it adds e_f∘p_P to dx_X
	// and e_f∘x_X to dp_P. Dx and dp may be one matrix.
	FeatureGrad func(dx, dp, d []T, runs []Run, p, x []T, ld int, w, z, y []T)
	// Dots sets dst[r] = Σ x_r∘w.
	Dots func(dst, x []T, xrs int, w []T)
	// Centre subtracts from each of n columns its mean. Equal numbers become
	// exactly zero.
	Centre func(x []T, rs, rows, n int)
	// Normalise gives each of n columns the 2-norm |length|, taken in float64.
	// A column whose norm is below 2⁻¹²⁶ becomes zero.
	Normalise func(x []T, rs, rows, n int, length T)
	// Standardise is Centre and then Normalise, but for rounding: it sums squares
	// in float64 only where float32 does not hold them, and else sums of them.
	Standardise func(x []T, rs, rows, n int, length T)
	// NormaliseGrad turns the gradient of normalised columns into that of the
	// columns x before, dx = length/|x|·(dx - x·(x·dx)/|x|²), or zero where
	// Normalise gives zero.
	NormaliseGrad func(dx, x []T, rs, rows, n int, length T)
	// Reflect turns n columns of mean 0 so that their last number is 0, by the
	// reflection that takes (1, …, 1) to the last axis. Inner products stay.
	Reflect func(x []T, rs, rows, n int)
	// ReflectGrad turns the gradient of reflected columns, but for their last
	// number, into that of columns before.
	ReflectGrad func(dx []T, rs, rows, n int)
	// Rotate turns each pair of rows x_r, y_r of n columns, to x∘cos - y∘sin
	// and y∘cos + x∘sin; rows of cos and sin lie cs apart.
	Rotate func(x, y []T, rs int, cos, sin []T, cs, rows, n int)

	// Mix adds to c the sum of rows b_p, of stride brs, weighted by a[p], and
	// returns total plus Σ a·z, unless z is nil. Every step rows have sums from
	// zero, as Block has them over k with acc; c is a multiple of Lanes long.
	Mix func(c, a []T, step int, b []T, brs int, z []T, total T) T
	// Renew serves count tokens, one after the other, each with a row of n elements of c
	// and y, one of k of a, q and x, rows crs, yrs and ars apart, and a state: k rows b_p
	// of n elements, brs apart, and k numbers z. The next token's state lies next
	// elements on; where that is 0, all of them have one. It sets c to w·y plus the sum
	// of rows b_p weighted by a[p], for w = c0 + c1·Σ q∘x, which it puts into w as it
	// puts w plus Σ a·z into totals, both [count]. Then it adds x[p]·y to the rows b_p,
	// and x[p] to z[p]: of a state the answer to a query, and the token that it comes
	// with. Sums are from zero, as Mix has them for a step of all rows; n is a multiple
	// of Lanes. No states overlap but for one, and nothing else does.
	Renew func(count, n, k int, c []T, crs int, a, q, x []T, ars int, y []T, yrs int, b []T, brs int, z []T, next int, c0, c1 T, totals, w []T)
	// FeatureRow sets dst to products of the components x of one token, a run
	// after the other: w∘((s·x[r])·x[r:]) for r < rows, each with the next part
	// of w. It may write Lanes-1 elements too many to dst, and read as many of w
	// and behind x. Dst does not overlap the others.
	FeatureRow func(dst, w []T, s T, x []T, rows int)

	// Uniform sets dst[16·j+4·w+b] to factor·(2x - 255), x being byte b of word w of
	// number i+j of key (rng.Key.Uint32s).
	Uniform func(dst []T, factor T, key rng.Key, i uint64)

	// AdamW updates the weights w and moments m, v from the gradient g.
	AdamW func(w, g, m, v []T, s *AdamWStep[T])
}

// Run is a run of features that share a factor: row P of a matrix p times rows
// X to X+N-1 of a matrix x, N > 0.
type Run struct{ P, X, N int32 }

// features returns the number of features of runs, and the rows of p and x that
// they reach.
func features(runs []Run) (count, p, x int) {
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
