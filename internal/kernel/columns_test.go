package kernel

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// columnRoutine is a routine over columns in a common form: from x and y [rows, n] of stride n+5 it
// changes dst of the same shape.
type columnRoutine[T Float] struct {
	name string
	run  func(k *Table[T], dst, x, y []T, rs, rows, n int)
	// exact returns a column of dst from columns of the old dst, x and y, and the
	// sizes whose roundings bound the tolerance.
	exact func(d, x, y []float64) (want, size []float64)
}

const length = 1.75

func columnRoutines[T Float]() []columnRoutine[T] {
	return []columnRoutine[T]{
		{"Products", func(k *Table[T], dst, x, y []T, rs, rows, n int) {
			k.Products(dst, rs, weights[T](rows), y[:n], x, rs)
		}, func(d, x, y []float64) (want, size []float64) {
			for r, a := range weights[float64](len(x)) {
				want = append(want, a*x[r]*y[0])
				size = append(size, math.Abs(a*x[r]*y[0]))
			}
			return want, size
		}},
		{"Centre", func(k *Table[T], dst, x, y []T, rs, rows, n int) {
			k.Centre(dst, rs, rows, n)
		}, func(d, x, y []float64) (want, size []float64) {
			mean, spread := centred(d, &want)
			for range d {
				size = append(size, spread+math.Abs(d[0]-mean))
			}
			return want, size
		}},
		{"Normalise", func(k *Table[T], dst, x, y []T, rs, rows, n int) {
			k.Normalise(dst, rs, rows, n, length)
		}, func(d, x, y []float64) (want, size []float64) {
			norm := math.Sqrt(inner(d, d))
			for _, v := range d {
				want = append(want, length/norm*v)
				size = append(size, math.Abs(length/norm*v))
			}
			return want, size
		}},
		{"Standardise", func(k *Table[T], dst, x, y []T, rs, rows, n int) {
			k.Standardise(dst, rs, rows, n, length)
		}, func(d, x, y []float64) (want, size []float64) {
			mean, spread := centred(d, &want)
			factor := length / math.Sqrt(inner(want, want))
			for i := range want {
				want[i] *= factor
				size = append(size, factor*(spread+math.Abs(d[0]-mean)))
			}
			return want, size
		}},
		{"NormaliseGrad", func(k *Table[T], dst, x, y []T, rs, rows, n int) {
			k.NormaliseGrad(dst, x, rs, rows, n, length)
		}, func(d, x, y []float64) (want, size []float64) {
			norm, slope := math.Sqrt(inner(x, x)), inner(x, d)/inner(x, x)
			for r := range d {
				want = append(want, length/norm*(d[r]-slope*x[r]))
				size = append(size, length/norm*(math.Abs(d[r])+math.Abs(slope*x[r])))
			}
			return want, size
		}},
		{"Reflect", func(k *Table[T], dst, x, y []T, rs, rows, n int) {
			k.Reflect(dst, rs, rows, n)
		}, func(d, x, y []float64) (want, size []float64) {
			last, a := d[len(d)-1], 1/(math.Sqrt(float64(len(d)))-1)
			for _, v := range d[:len(d)-1] {
				want = append(want, v+a*last)
				size = append(size, math.Abs(v)+math.Abs(a*last))
			}
			return append(want, 0), append(size, 0)
		}},
		{"ReflectGrad", func(k *Table[T], dst, x, y []T, rs, rows, n int) {
			k.ReflectGrad(dst, rs, rows, n)
		}, func(d, x, y []float64) (want, size []float64) {
			a := 1 / (math.Sqrt(float64(len(d))) - 1)
			var sum, abs float64
			for _, v := range d[:len(d)-1] {
				want, size = append(want, v), append(size, 0)
				sum, abs = sum+a*v, abs+math.Abs(a*v)
			}
			return append(want, sum), append(size, abs)
		}},
		{"Rotate", func(k *Table[T], dst, x, y []T, rs, rows, n int) {
			k.Rotate(dst, dst[rows/2*rs:], rs, x, y, rs, rows/2, n)
		}, func(d, x, y []float64) (want, size []float64) {
			half := len(d) / 2
			want = slices.Clone(d)
			size = make([]float64, len(d))
			for r := range half {
				a, b := d[r], d[half+r]
				want[r], want[half+r] = a*x[r]-b*y[r], b*x[r]+a*y[r]
				size[r] = math.Abs(a*x[r]) + math.Abs(b*y[r])
				size[half+r] = math.Abs(b*x[r]) + math.Abs(a*y[r])
			}
			return want, size
		}},
	}
}

// weights are the weights of the rows of Products.
func weights[T Float](rows int) []T {
	w := make([]T, rows)
	for r := range w {
		w[r] = T(r%5) - 1.5
	}
	return w
}

func inner(x, y []float64) (s float64) {
	for i := range x {
		s += x[i] * y[i]
	}
	return s
}

// centred sets dst to x minus its mean, and returns the mean and the largest element of dst.
func centred(x []float64, dst *[]float64) (mean, most float64) {
	for _, v := range x {
		mean += (v - x[0]) / float64(len(x))
	}
	for _, v := range x {
		d := v - x[0] - mean
		*dst = append(*dst, d)
		most = max(most, math.Abs(d))
	}
	return mean + x[0], most
}

func TestColumns(t *testing.T) {
	t.Run("float32", func(t *testing.T) { each(t, testColumns[float32]) })
	t.Run("float64", func(t *testing.T) { each(t, testColumns[float64]) })
}

// Every column equals the formula, and has the same bits alone.
func testColumns[T Float](t *testing.T, k *Table[T]) {
	r, u := source(), unit[T]()+unit[float64]()
	for _, f := range columnRoutines[T]() {
		for _, rows := range []int{2, 3, 17, 129} {
			for _, n := range []int{1, 3, 15, 16, 17, 31, 33, 67, 80, 130} {
				rs := n + 5
				dst, x, y := matrix[T](r, rows, n, rs), matrix[T](r, rows, n, rs), matrix[T](r, rows, n, rs)
				for i := range dst.data {
					dst.data[i] += 3 // a mean that is not 0
				}
				before := slices.Clone(dst.data)
				f.run(k, dst.data, x.data, y.data, rs, rows, n)
				dst.intact(t, f.name)
				for i := range n {
					d0, dc, xc, yc := column(before, rs, rows, i), column(dst.data, rs, rows, i), column(x.data, rs, rows, i), column(y.data, rs, rows, i)
					want, size := f.exact(wide(d0), wide(xc), wide(yc))
					for c, got := range dc {
						// A sum of all rows, and a few operations on it.
						if !near(float64(got), want[c], float64(rows+6)*u*size[c]) {
							t.Fatalf("%s rows=%d n=%d: [%d,%d] = %v, want %v", f.name, rows, n, c, i, got, want[c])
						}
					}
					f.run(k, d0, xc, yc, 1, rows, 1)
					if !same(d0, dc) {
						t.Fatalf("%s rows=%d n=%d: column %d has other bits alone", f.name, rows, n, i)
					}
				}
				for i, got := range dst.data {
					if i%rs >= n && bits(got) != bits(before[i]) {
						t.Fatalf("%s rows=%d n=%d: written beyond row %d", f.name, rows, n, i/rs)
					}
				}
			}
		}
	}
}

func column[T Float](x []T, rs, rows, i int) []T {
	var c []T
	for r := range rows {
		c = append(c, x[r*rs+i])
	}
	return c
}

func wide[T Float](x []T) []float64 {
	var y []float64
	for _, v := range x {
		y = append(y, float64(v))
	}
	return y
}

// Columns without direction become exactly zero and have zero gradient, beside others of any size.
func TestColumnsWithoutDirection(t *testing.T) { each(t, testColumnsWithoutDirection) }

func testColumnsWithoutDirection(t *testing.T, k *Table[float32]) {
	r := source()
	const rows, n = 19, 21
	x, dx := matrix[float32](r, rows, n, n).data, matrix[float32](r, rows, n, n).data
	sizes := []float32{1e-36, 1e-30, 1, 1e17, 1e30}
	for i := range n {
		for c := range rows {
			switch {
			case i%3 == 0:
				x[c*n+i] = 0.1 + 1e4*float32(i)
			case i%3 == 1:
				x[c*n+i] *= sizes[i%len(sizes)]
			}
		}
	}
	whole := slices.Clone(x)
	k.Standardise(whole, n, rows, n, length)
	k.Centre(x, n, rows, n)
	k.NormaliseGrad(dx, x, n, rows, n, length)
	k.Normalise(x, n, rows, n, length)
	for i := range n {
		c, d := wide(column(x, n, rows, i)), wide(column(dx, n, rows, i))
		want := length * length
		if i%3 == 0 {
			want = 0
		}
		if got := inner(c, c); math.Abs(got-want) > 1e-5 {
			t.Errorf("column %d has the squared norm %v, want %v", i, got, want)
		}
		for r, got := range column(whole, n, rows, i) {
			if math.Abs(float64(got)-c[r]) > 0x1p-20 || want == 0 && got != 0 {
				t.Errorf("column %d standardises to %v in row %d, is %v in two steps", i, got, r, c[r])
			}
		}
		if got := inner(d, d); i%3 == 0 && got != 0 {
			t.Errorf("column %d, of equal numbers, has a gradient", i)
		}
	}
}

// Reflection preserves inner products of columns of mean 0, and its gradient is the transpose.
func TestReflectKeepsInnerProducts(t *testing.T) { each(t, testReflectKeepsInnerProducts) }

func testReflectKeepsInnerProducts(t *testing.T, k *Table[float64]) {
	r := source()
	for _, rows := range []int{1, 2, 3, 16, 65} {
		x, y := guard[float64](rows, 0).random(r).data, guard[float64](rows, 0).random(r).data
		k.Centre(x, 1, rows, 1)
		k.Centre(y, 1, rows, 1)
		a, b := slices.Clone(x), slices.Clone(y)
		k.Reflect(a, 1, rows, 1)
		k.Reflect(b, 1, rows, 1)
		if got, want := inner(a, b), inner(x, y); math.Abs(got-want) > 1e-13*float64(rows) || a[rows-1] != 0 {
			t.Errorf("rows=%d: the product is %v with last numbers %v and %v, was %v", rows, got, a[rows-1], b[rows-1], want)
		}
		if rows == 1 {
			continue
		}
		g := guard[float64](rows, 0).random(r).data
		g[rows-1] = 0
		want := inner(g, a)
		if k.ReflectGrad(g, 1, rows, 1); math.Abs(inner(g, x)-want) > 1e-13*float64(rows) {
			t.Errorf("rows=%d: the gradient gives %v, want %v", rows, inner(g, x), want)
		}
	}
}

// The sum of float32 deviations is taken twice, so that a mean far from zero,
// or a first number far from the others, costs no digits of the rest.
//
// With u = 2⁻²⁴ and w the exact result: x−x₀ is rounded by u(|wᵢ|+|w₀|), that less the
// mean by u|wᵢ|, and the last difference by u|wᵢ|. The mean of the first two roundings
// is taken off again with the mean of the deviations, whose sum is rounded at each of
// its parts S by u|S|: those may all have one sign, where numbers lie on a grid.
func TestCentreAccuracy(t *testing.T) { each(t, testCentreAccuracy) }

func testCentreAccuracy(t *testing.T, k *Table[float32]) {
	r := source()
	for _, rows := range []int{16, 64, 128, 1024} {
		for _, c := range []struct{ mean, first float32 }{{0, 0}, {1000, 0}, {0, 50}} {
			x := guard[float32](rows, 0).random(r).data
			for i := range x {
				x[i] += c.mean
			}
			x[0] += c.first
			var want []float64
			centred(wide(x), &want)
			var sum, sums, size float64
			for _, w := range want {
				sum += w
				sums += math.Abs(sum)
				size += math.Abs(w)
			}
			k.Centre(x, 1, rows, 1)
			for i, got := range x {
				bound := 0x1p-24 * (3*math.Abs(want[i]) + 2*math.Abs(want[0]) + (2*size+sums)/float64(rows))
				if e := math.Abs(float64(got) - want[i]); e > bound {
					t.Errorf("rows=%d mean=%v first=%v: error %.2g, at most %.2g", rows, c.mean, c.first, e, bound)
					break
				}
			}
		}
	}
}

// The same holds for both steps in one, where length, factor and their product are rounded, too. A
// mean below the resolution of float32 counts neither for the mean nor for the length.
func TestStandardiseAccuracy(t *testing.T) { each(t, testStandardiseAccuracy) }

func testStandardiseAccuracy(t *testing.T, k *Table[float32]) {
	if k.Name == "generic" {
		t.Skip("is Centre and Normalise")
	}
	r := source()
	for _, rows := range []int{16, 64, 128, 1024} {
		for _, c := range []struct{ mean, first float32 }{{0, 0}, {1000, 0}, {1e7, 0}, {-1e7, 0}, {0, 50}} {
			x := guard[float32](rows, 0).random(r).data
			for i := range x {
				x[i] += c.mean
			}
			x[0] += c.first
			var want []float64
			centred(wide(x), &want)
			size := math.Sqrt(inner(want, want))
			spread := size / math.Sqrt(float64(rows))
			k.Standardise(x, 1, rows, 1, float32(size))
			for i, got := range x {
				if e := math.Abs(float64(got) - want[i]); !(e <= 0x1p-23*(2.5*math.Abs(want[i])+math.Abs(want[0])+2*spread)) {
					t.Errorf("rows=%d mean=%v first=%v: error %.2g of spread %.2g", rows, c.mean, c.first, e, spread)
					break
				}
			}
		}
	}
}

// A column that is normalised has the length, however small or large it was, and its gradient is
// smaller by the factor. A column that is too small for that becomes zero.
func TestNormalisedColumnsOfAnySize(t *testing.T) {
	t.Run("float32", func(t *testing.T) {
		each(t, func(t *testing.T, k *Table[float32]) {
			testNormalisedSizes(t, k, []int{-149, -134, -131, -130, -129, -128, -126, 40, 120})
		})
	})
	t.Run("float64", func(t *testing.T) {
		each(t, func(t *testing.T, k *Table[float64]) {
			testNormalisedSizes(t, k, []int{-1000, -600, -120, 40, 511, 600, 1010})
		})
	})
}

func testNormalisedSizes[T Float](t *testing.T, k *Table[T], exponents []int) {
	const n, rows = 20, 64
	fill := func(x []T, exponent int) { // of mean 0 and the length 8·2^exponent
		for i := range x {
			x[i] = T(math.Ldexp(float64(1-2*(i/n%2)), exponent))
		}
	}
	for _, length := range []T{0.5, 1, 8, 300, -300} {
		for _, e := range exponents {
			x, y, dx := make([]T, n*rows), make([]T, n*rows), make([]T, n*rows)
			fill(x, e)
			fill(y, e)
			for i := range dx {
				dx[i] = T(i/n) / 0x1p8
			}
			k.Normalise(x, n, rows, n, length)
			k.Standardise(y, n, rows, n, length)
			want := float64(length) / 8
			if size := math.Ldexp(8, e); size < tiny || unit[T]() > 1e-10 && size < math.Abs(float64(length))*0x1p-127 {
				want = 0
			}
			if d := math.Abs(float64(x[0])-want) + math.Abs(float64(y[0])-want); !(d <= 1e-6*math.Abs(want)) {
				t.Errorf("length %v: columns of 2^%d become %v and %v, want %v", length, e, x[0], y[0], want)
			}
			fill(x, e)
			k.NormaliseGrad(dx, x, n, rows, n, length)
			var along float64 // Σ dx·x/|x| = -1/8 before
			for r := range rows {
				along += float64(r) / 0x1p8 * float64(1-2*(r%2)) / 64
			}
			slope := math.Ldexp((63./0x1p8+along)*want, -e) // of row 63, which is negative
			if got := float64(dx[63*n]); !(math.Abs(got-slope) <= 1e-5*math.Abs(slope)+float64(T(math.Ldexp(1, -148)))) {
				t.Errorf("length %v: columns of 2^%d have the gradient %v, want %v", length, e, got, slope)
			}
		}
	}
	for _, e := range []int{-700, 0, 700} {
		x := []float64{math.Ldexp(3, e), 0, math.Ldexp(-4, e)}
		if got, want := ColumnNorm(x, 1, 3), math.Ldexp(5, e); math.Abs(got/want-1) > 1e-15 {
			t.Errorf("%v has the norm %v, want %v", x, got, want)
		}
	}
}

func TestDots(t *testing.T) {
	t.Run("float32", func(t *testing.T) { each(t, testDots[float32]) })
	t.Run("float64", func(t *testing.T) { each(t, testDots[float64]) })
}

func testDots[T Float](t *testing.T, k *Table[T]) {
	r, u := source(), unit[T]()
	for _, rows := range []int{0, 1, 3, 4, 5, 8, 11} {
		for _, n := range sizes {
			x, w, dst := matrix[T](r, rows, n, n+3).data, guard[T](n, 1).random(r).data, guard[T](rows, 2)
			k.Dots(dst.data, x, n+3, w)
			dst.intact(t, "Dots")
			for i, got := range dst.data {
				var want, size float64
				for c, v := range x[i*(n+3):][:n] {
					want += float64(v) * float64(w[c])
					size += math.Abs(float64(v) * float64(w[c]))
				}
				if !near(float64(got), want, float64(n+4)*u*size) {
					t.Fatalf("rows=%d n=%d: [%d] = %v, want %v", rows, n, i, got, want)
				}
				var one [1]T
				if k.Dots(one[:], x[i*(n+3):], n+3, w); one[0] != got {
					t.Fatalf("rows=%d n=%d: row %d has other bits alone", rows, n, i)
				}
			}
		}
	}
}

func TestColumnsShort(t *testing.T) { each(t, testColumnsShort) }

func testColumnsShort(t *testing.T, k *Table[float32]) {
	const n, rows = 20, 3
	long, short := make([]float32, n*rows), make([]float32, n*rows-1)
	for i, f := range []func(){
		func() { k.Products(long, n, long[:rows], long[:n], short, n) },
		func() { k.Products(short, n, long[:rows], long[:n], long, n) },
		func() { k.FeatureSums(short, []Run{{0, 0, rows}}, long, long, n, long[:n], long) },
		func() { k.FeatureSums(long, []Run{{0, 0, rows}}, long, long, n, long[:n], long[:rows-1:rows-1]) },
		func() { k.FeatureDots(long, []Run{{rows - 1, 0, 1}}, short, long, n, long, long, long[:n]) },
		func() { k.FeatureDots(long, []Run{{0, 1, rows - 1}}, long, short, n, long, long, long[:n]) },
		func() { k.FeatureGrad(long, long, long, []Run{{0, 1, rows}}, long, long, n, long, long, long[:n]) },
		func() { k.FeatureGrad(long, short, long, []Run{{rows - 1, 0, 1}}, long, long, n, long, long, long[:n]) },
		func() { k.FeatureGrad(long, long, long, []Run{{-1, 0, 1}}, long, long, n, long, long, long[:n]) },
		func() { k.Dots(long[:rows], short, n, long[:n]) },
		func() { k.Centre(short, n, rows, n) },
		func() { k.Normalise(short, n, rows, n, 1) },
		func() { k.Standardise(short, n, rows, n, 1) },
		func() { k.NormaliseGrad(long, short, n, rows, n, 1) },
		func() { k.Reflect(short, n, rows, n) },
		func() { k.ReflectGrad(short, n, rows, n) },
		func() { k.Rotate(long, short, n, long, long, n, rows, n) },
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

func TestColumnsDoNotAllocate(t *testing.T) { each(t, testColumnsDoNotAllocate) }

func testColumnsDoNotAllocate(t *testing.T, k *Table[float32]) {
	x, w, sums := make([]float32, 7*77), make([]float32, 77), make([]float32, 77)
	runs := []Run{{0, 0, 2}, {1, 1, 1}}
	if count := testing.AllocsPerRun(5, func() {
		k.Products(x, 77, w[:3], w, x[4*77:], 77)
		k.FeatureSums(x, runs, x[4*77:], x[4*77:], 77, w, sums)
		k.FeatureDots(x, runs, x[4*77:], x[4*77:], 77, w, w, sums)
		k.FeatureGrad(x, x, x[4*77:], runs, x[4*77:], x[4*77:], 77, w, w, w)
		k.Dots(w[:7], x, 77, x[:77])
		k.Centre(x, 77, 7, 77)
		k.Normalise(x, 77, 7, 77, 1)
		k.Standardise(x, 77, 7, 77, 1)
		k.NormaliseGrad(x, w, 1, 7, 1, 1)
		k.Reflect(x, 77, 7, 77)
		k.ReflectGrad(x, 77, 7, 77)
		k.Rotate(x, x[77:], 77, w, w, 77, 1, 77)
	}); count != 0 {
		t.Errorf("%v allocations", count)
	}
}
