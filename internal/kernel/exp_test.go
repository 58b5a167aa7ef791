package kernel

import (
	"math"
	"slices"
	"testing"
)

func TestExpRows(t *testing.T) {
	t.Run("float32", func(t *testing.T) { each(t, testExpRows[float32]) })
	t.Run("float64", func(t *testing.T) { each(t, testExpRows[float64]) })
}

func testExpRows[T Float](t *testing.T, k *Table[T]) {
	const factor = 0.625
	r, u := source(), unit[T]()
	for _, rows := range []int{0, 1, 3} {
		for _, n := range sizes {
			shift, sum := guard[T](rows, 1).random(r), guard[T](rows, 2).random(r)
			for i := range shift.data {
				shift.data[i] = T(math.Round(4 * float64(shift.data[i])))
			}
			x := matrix[T](r, rows, n, n+3)
			before, sumBefore := slices.Clone(x.data), slices.Clone(sum.data)
			k.ExpRows(x.data, n+3, n, T(factor), shift.data, sum.data)
			x.intact(t, "ExpRows")
			sum.intact(t, "ExpRows")
			for i, got := range x.data {
				if i%(n+3) >= n {
					if bits(got) != bits(mark[T]()) {
						t.Fatalf("rows=%d n=%d: written behind a row", rows, n)
					}
					continue
				}
				power := factor*float64(before[i]) - float64(shift.data[i/(n+3)])
				want := math.Exp2(power)
				if !near(float64(got), want, (6+2*math.Abs(power))*u*want) {
					t.Fatalf("rows=%d n=%d: [%d] = %v, want %v", rows, n, i, got, want)
				}
			}
			for i, got := range sum.data {
				want := float64(sumBefore[i])
				size := math.Abs(want)
				for _, w := range x.data[i*(n+3):][:n] {
					want, size = want+float64(w), size+float64(w)
				}
				if !near(float64(got), want, float64(n+2)*u*size) {
					t.Fatalf("rows=%d n=%d: sum %v, want %v", rows, n, got, want)
				}
			}
		}
	}
}

// The arguments are exact powers of two: the shift is the integer part, and the row holds the rest,
// whose product with log₂e is almost exact.
func TestExpRowsAccuracy(t *testing.T) { each(t, testExpRowsAccuracy) }

func testExpRowsAccuracy(t *testing.T, k *Table[float32]) {
	const n = 20011
	x, sum := make([]float32, n), make([]float32, 1)
	worst := 0.0
	for _, shift := range []float32{0, 3, 125, -127, -100} {
		for i := range x {
			x[i] = (float32(i)/(n-1) - 0.5) * math.Ln2
		}
		before := slices.Clone(x)
		k.ExpRows(x, n, n, math.Log2E, []float32{shift}, sum)
		for i, got := range x {
			want := math.Exp2(float64(before[i])*math.Log2E - float64(shift))
			if want < 0x1p-126 || want > math.MaxFloat32 {
				continue
			}
			_, e := math.Frexp(want)
			// What rounding the power changes is not the exponential's doing.
			slack := math.Abs(math.Log2(want)) * 0x1p-24 * math.Ln2 * want
			worst = max(worst, (math.Abs(float64(got)-want)-slack)/math.Ldexp(1, e-24))
		}
	}
	t.Logf("worst error %.3f ulp", worst)
	if !(worst <= 2) {
		t.Errorf("off by %.3f ulp", worst)
	}
}

func TestExpRowsSpecial(t *testing.T) { each(t, testExpRowsSpecial) }

func testExpRowsSpecial(t *testing.T, k *Table[float32]) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	odd := math.Float32frombits(0x7fc00001) // a NaN with a payload in its low bits
	for _, c := range []struct{ x, shift, want float32 }{
		{0, 0, 1}, {0, 5, 0x1p-5}, {0, -128, inf}, {0, -127, 0x1p127}, {0, 126, 0x1p-126}, {0, 160, 0},
		{-inf, 0, 0}, {inf, 0, inf}, {-200, 0, 0}, {200, 0, inf}, {-1e30, 0, 0}, {1e30, 0, inf},
		{nan, 0, nan}, {odd, 0, nan}, {-odd, 0, nan}, {inf, inf, nan}, {-inf, -inf, nan}, {1, inf, 0}, {1, nan, nan},
	} {
		for _, n := range []int{1, 16, 35} {
			x, sum := slices.Repeat([]float32{c.x}, n), []float32{0}
			k.ExpRows(x, n, n, math.Log2E, []float32{c.shift}, sum)
			for _, got := range x {
				if got != c.want && (got == got || c.want == c.want) {
					t.Fatalf("e^%v/2^%v = %v, want %v", c.x, c.shift, got, c.want)
				}
			}
			if want := c.want * float32(n); sum[0] != want && (sum[0] == sum[0] || want == want) {
				t.Fatalf("e^%v/2^%v: the sum of %d is %v", c.x, c.shift, n, sum[0])
			}
		}
	}
}

// The rows of a panel have the same bits as each row alone.
func TestRowsTogether(t *testing.T) { each(t, testRowsTogether) }

func testRowsTogether(t *testing.T, k *Table[float32]) {
	r := source()
	const rows = 3
	for name, f := range map[string]func(dst, x []float32, rs, n int, a, sum []float32){
		"ExpRows": func(dst, _ []float32, rs, n int, a, sum []float32) { k.ExpRows(dst, rs, n, 0.7, a, sum) },
		"PolyRows": func(dst, x []float32, rs, n int, _, sum []float32) {
			k.PolyRows(dst, x, rs, n, []float32{1, 1, 0.5}, sum)
		},
		"MulRows":   func(dst, x []float32, rs, n int, a, _ []float32) { k.MulRows(dst, x, rs, n, a) },
		"ScaleRows": func(dst, x []float32, rs, n int, a, _ []float32) { k.ScaleRows(dst, rs, x, rs, n, a) },
		"MixRows":   func(dst, x []float32, rs, n int, a, _ []float32) { k.MixRows(dst, rs, x, rs, a, dst, rs, a, n) },
		"ClearRows": func(dst, _ []float32, rs, n int, a, _ []float32) { k.ClearRows(dst, rs, len(a), n) },
	} {
		for _, n := range sizes {
			rs := n + 5
			dst, x := matrix[float32](r, rows, n, rs), matrix[float32](r, rows, n, rs).data
			a, sum := guard[float32](rows, 1).random(r).data, guard[float32](rows, 2).random(r)
			want, wantSum := slices.Clone(dst.data), slices.Clone(sum.data)
			for i := range rows {
				f(want[i*rs:], x[i*rs:], rs, n, a[i:][:1], wantSum[i:][:1])
			}
			f(dst.data, x, rs, n, a, sum.data)
			dst.intact(t, name)
			sum.intact(t, name)
			if !same(dst.data, want) || !same(sum.data, wantSum) {
				t.Errorf("%s(%d): rows together differ from rows alone", name, n)
			}
		}
	}
}
