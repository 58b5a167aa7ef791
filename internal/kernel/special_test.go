package kernel

import (
	"math"
	"slices"
	"testing"
)

// With NaNs, infinities, zeros and huge numbers at each place of a vector, every implementation agrees
// with pure Go on NaN, infinity and sign of each element and each sum.
func TestSpecial(t *testing.T) { each(t, testSpecial) }

func testSpecial(t *testing.T, k *Table[float32]) {
	inf := float32(math.Inf(1))
	odd := []float32{float32(math.NaN()), inf, -inf, 0, float32(math.Copysign(0, -1)), 1e30, -1e30, math.MaxFloat32, 200, -200, 1e-38}
	plain, r := genericTable[float32](), source()
	const n = 53
	for _, f := range rowRoutines[float32]() {
		for _, a := range odd {
			for _, b := range append(odd, 0.5) {
				x, y, d := guard[float32](n, 1).random(r).data, guard[float32](n, 2).random(r).data, guard[float32](n, 3).random(r).data
				for i := 0; i < n; i += 5 {
					x[i], y[i] = a, b
				}
				want := slices.Clone(d)
				wantSum := f.run(plain, want, x, y)
				sum := f.run(k, d, x, y)
				for i := range want {
					if !alike(d[i], want[i]) {
						t.Fatalf("%s(x=%v, y=%v)[%d] = %v, want %v", f.name, x[i], y[i], i, d[i], want[i])
					}
				}
				if !alike(sum, wantSum) && !dependsOnOrder(sumTerms(f, want, x, y)) {
					t.Fatalf("%s with x=%v, y=%v: sum %v, want %v", f.name, a, b, sum, wantSum)
				}
			}
		}
	}
}

// sumTerms returns the terms of the sum that f returns, or none where f returns no sum.
func sumTerms(f rowRoutine[float32], dst, x, y []float32) []float64 {
	var terms []float64
	for i := range x {
		switch {
		case f.sum:
			terms = append(terms, float64(dst[i]))
		case f.name == "Dot":
			terms = append(terms, float64(x[i])*float64(y[i]))
		case f.name == "Sum":
			terms = append(terms, float64(x[i]))
		}
	}
	return terms
}

// dependsOnOrder reports whether finite terms overflow in some order of addition. The sum is NaN in
// every order if a term is NaN.
func dependsOnOrder(terms []float64) bool {
	size := 0.0
	for _, x := range terms {
		if math.IsNaN(x) {
			return false
		}
		if !math.IsInf(x, 0) {
			size += math.Abs(x)
		}
	}
	return size > math.MaxFloat32
}

// alike reports whether x and y are both NaN, or the same infinity, or finite with the same sign;
// a zero is alike to both signs.
func alike(x, y float32) bool {
	a, b := float64(x), float64(y)
	if math.IsNaN(b) || math.IsInf(b, 0) {
		return math.IsNaN(a) && math.IsNaN(b) || a == b
	}
	return !math.IsNaN(a) && !math.IsInf(a, 0) && (a == 0 || b == 0 || math.Signbit(a) == math.Signbit(b))
}

// NaN and Inf in A and B reach exactly the elements of C that depend on them.
func TestGemmSpecial(t *testing.T) { each(t, testGemmSpecial) }

func testGemmSpecial(t *testing.T, tab *Table[float32]) {
	const m, n, k = 29, 50, 37
	r := source()
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(-1))} {
		for _, tb := range []bool{false, true} {
			a, b := matrix[float32](r, m, k, k).data, matrix[float32](r, k, n, n).data
			ldb := n
			if tb {
				ldb = k
			}
			a[5*k+7] = bad
			b[11*n+3] = bad
			if tb {
				b[11*n+3] = 1
				b[3*k+11] = bad
			}
			c := make([]float32, m*n)
			Gemm(tab, false, tb, m, n, k, a, k, b, ldb, false, c, n, make([]float32, GemmScratch(m, n, k)))
			for i := range m {
				for j := range n {
					x := float64(c[i*n+j])
					finite := !math.IsNaN(x) && !math.IsInf(x, 0)
					if finite != (i != 5 && j != 3) {
						t.Fatalf("bad=%v tb=%v: C[%d,%d] = %v", bad, tb, i, j, x)
					}
				}
			}
		}
	}
}

// All float32 numbers with finite nonzero exp.
func TestExpAccuracy(t *testing.T) { each(t, testExpAccuracy) }

func testExpAccuracy(t *testing.T, k *Table[float32]) {
	const smallest = 0x1p-126 // of the normal numbers; smaller results may be 0
	y := make([]float32, walked)
	worst, worstAt := 0.0, float32(0)
	check := func(x []float32) {
		k.Exp(y[:len(x)], x, 0)
		for i, v := range x {
			want := math.Exp(float64(v))
			got := float64(y[i])
			switch {
			case want < smallest:
				if !(got >= 0 && got <= smallest) {
					t.Fatalf("exp(%v) = %v, want %v", v, got, want)
				}
			case float32(want) > math.MaxFloat32:
				if !math.IsInf(got, 1) {
					t.Fatalf("exp(%v) = %v, want +Inf", v, got)
				}
			default:
				_, e := math.Frexp(want)
				if err := math.Abs(got-want) / math.Ldexp(1, e-24); err > worst || math.IsNaN(err) {
					worst, worstAt = err, v
				}
			}
		}
	}
	walk(120, check)
	// The edges, number by number.
	for _, edge := range []float32{88.72283, -87.33654, 0} {
		var x []float32
		b := math.Float32bits(edge)
		for d := range uint32(100) {
			x = append(x, math.Float32frombits(b+d), math.Float32frombits(b-min(d, b)))
		}
		check(x)
	}
	check([]float32{float32(math.Inf(1)), float32(math.Inf(-1))})
	t.Logf("worst error %.3f ulp, at %v", worst, worstAt)
	if !(worst <= 2) {
		t.Errorf("exp(%v) is off by %.3f ulp", worstAt, worst)
	}
}

// walked bounds the numbers per call of walk.
const walked = 4096

// walk calls check with float32 numbers of both signs up to most, evenly spread by their bits, so that
// all binades have equal counts.
func walk(most float32, check func(x []float32)) {
	stride := uint32(997)
	if testing.Short() {
		stride *= 16
	}
	x := make([]float32, 0, walked)
	end := math.Float32bits(most)
	for b := uint32(0); b < end; b += stride {
		v := math.Float32frombits(b)
		if x = append(x, v, -v); len(x) == cap(x) {
			check(x)
			x = x[:0]
		}
	}
	check(x)
}
