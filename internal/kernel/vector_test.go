package kernel

import (
	"math"
	"testing"
)

// rowRoutine is a routine over rows in a common form: it sets dst, which it may also read, from x and y,
// and may return a sum.
type rowRoutine[T Float] struct {
	name string
	run  func(k *Table[T], dst, x, y []T) T
	// exact is the element of dst, given its value before, and its tolerance
	// in units of rounding.
	exact func(d, x, y float64) (value, units float64)
	sum   bool // run returns Σ dst
	only  bool // dst is not written
}

const factor = 0.7

func rowRoutines[T Float]() []rowRoutine[T] {
	a := T(factor)
	coef := []T{1, 1, 0.5, -0.25, 0.125}
	// of is what a routine over several rows adds to the sum of the only one.
	only, threeQuarters := make([]T, 1), []T{0.75}
	of := func(f func(sum []T)) T {
		only[0] = 0
		f(only)
		return only[0]
	}
	return []rowRoutine[T]{
		{name: "Axpy", run: func(k *Table[T], dst, x, _ []T) T { k.Axpy(dst, a, x); return 0 },
			exact: func(d, x, _ float64) (float64, float64) {
				p := float64(a) * x
				return d + p, math.Abs(d) + 2*math.Abs(p)
			}},
		{name: "Scale", run: func(k *Table[T], dst, x, _ []T) T { k.Scale(dst, a, x); return 0 },
			exact: func(_, x, _ float64) (float64, float64) { return float64(a) * x, math.Abs(x) }},
		{name: "Add", run: func(k *Table[T], dst, x, y []T) T { k.Add(dst, x, y); return 0 },
			exact: func(_, x, y float64) (float64, float64) { return x + y, math.Abs(x + y) }},
		{name: "Mul", run: func(k *Table[T], dst, x, y []T) T { k.Mul(dst, x, y); return 0 },
			exact: func(_, x, y float64) (float64, float64) { return x * y, math.Abs(x * y) }},
		{name: "MulAdd", run: func(k *Table[T], dst, x, y []T) T { k.MulAdd(dst, x, y); return 0 },
			exact: func(d, x, y float64) (float64, float64) {
				return d + x*y, math.Abs(d) + 2*math.Abs(x*y)
			}},
		{name: "Exp", run: func(k *Table[T], dst, x, _ []T) T { return k.Exp(dst, x, a) }, sum: true,
			exact: func(_, x, _ float64) (float64, float64) {
				// The difference x - shift is rounded, then exp to 2 ulp.
				d := x - float64(a)
				return math.Exp(d), (4 + math.Abs(d)) * math.Exp(d)
			}},
		{name: "Poly", run: func(k *Table[T], dst, x, _ []T) T {
			return of(func(sum []T) { k.PolyRows(dst, x, len(dst), len(dst), coef, sum) })
		}, sum: true,
			exact: func(_, x, _ float64) (value, size float64) {
				for l := len(coef) - 1; l >= 0; l-- {
					value = value*x + float64(coef[l])
					size = size*math.Abs(x) + math.Abs(float64(coef[l]))
				}
				return value, 2 * float64(len(coef)) * size
			}},
		{name: "Poly of one term", run: func(k *Table[T], dst, x, _ []T) T {
			return of(func(sum []T) { k.PolyRows(dst, x, len(dst), len(dst), coef[2:3], sum) })
		}, sum: true,
			exact: func(_, _, _ float64) (float64, float64) { return float64(coef[2]), 0 }},
		{name: "MulRows", run: func(k *Table[T], dst, x, _ []T) T {
			only[0] = a
			k.MulRows(dst, x, len(dst), len(dst), only)
			return 0
		},
			exact: func(d, x, _ float64) (float64, float64) { return (d + float64(a)) * x, 2 * math.Abs((d+float64(a))*x) }},
		{name: "ScaleRows", run: func(k *Table[T], dst, x, _ []T) T {
			only[0] = a
			k.ScaleRows(dst, len(dst), x, len(x), len(dst), only)
			return 0
		},
			exact: func(_, x, _ float64) (float64, float64) { return float64(a) * x, math.Abs(float64(a) * x) }},
		{name: "MixRows", run: func(k *Table[T], dst, x, y []T) T {
			only[0] = a
			k.MixRows(dst, len(dst), x, len(x), only, y, len(y), threeQuarters, len(dst))
			return 0
		},
			exact: func(_, x, y float64) (float64, float64) {
				return float64(a)*x + 0.75*y, 2 * (math.Abs(float64(a)*x) + math.Abs(0.75*y))
			}},
		{name: "ClearRows", run: func(k *Table[T], dst, _, _ []T) T {
			k.ClearRows(dst, len(dst), 1, len(dst))
			return 0
		},
			exact: func(_, _, _ float64) (float64, float64) { return 0, 0 }},
		{name: "GELU", run: func(k *Table[T], dst, x, _ []T) T { k.GELU(dst, x); return 0 },
			exact: func(_, x, _ float64) (float64, float64) {
				// (1 + tanh z)/2 = σ(2z), which loses no digits.
				z := 2 * geluA * (x + geluB*x*x*x)
				v := x / (1 + math.Exp(-z))
				return v, (8 + 4*math.Abs(z)) * math.Abs(v)
			}},
		{name: "GELUGrad", run: func(k *Table[T], dst, x, y []T) T { k.GELUGrad(dst, y, x); return 0 },
			exact: func(_, x, y float64) (float64, float64) {
				t := math.Tanh(geluA * (x + geluB*x*x*x))
				v := y * ((1+t)/2 + x/2*(1-t*t)*geluA*(1+3*geluB*x*x))
				return v, 40 * math.Abs(y)
			}},
		{name: "ErfGELU", run: func(k *Table[T], dst, x, _ []T) T { k.ErfGELU(dst, x); return 0 },
			exact: func(_, x, _ float64) (float64, float64) {
				v := x * math.Erfc(-x/math.Sqrt2) / 2
				return v, 14 * math.Abs(v) // 7 ulp
			}},
		{name: "ErfGELUGrad", run: func(k *Table[T], dst, x, y []T) T { k.ErfGELUGrad(dst, y, x); return 0 },
			exact: func(_, x, y float64) (float64, float64) {
				tail, slope := math.Erfc(-x/math.Sqrt2)/2, x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi)
				return y * (tail + slope), 10 * math.Abs(y) * (tail + math.Abs(slope))
			}},
		{name: "EluPlusOne", run: func(k *Table[T], dst, x, _ []T) T { k.EluPlusOne(dst, x); return 0 },
			exact: func(_, x, _ float64) (float64, float64) {
				v := math.Exp(min(x, 0)) + max(x, 0)
				return v, 4 * v
			}},
		{name: "EluPlusOneGrad", run: func(k *Table[T], dst, x, y []T) T { k.EluPlusOneGrad(dst, y, x); return 0 },
			exact: func(_, x, y float64) (float64, float64) {
				v := y * math.Exp(min(x, 0))
				return v, 5 * math.Abs(v)
			}},
		{name: "Dot", run: func(k *Table[T], _, x, y []T) T { return k.Dot(x, y) }, only: true},
		{name: "Sum", run: func(k *Table[T], _, x, _ []T) T { return k.Sum(x) }, only: true},
		{name: "Max", run: func(k *Table[T], _, x, _ []T) T { return k.Max(x) }, only: true},
	}
}

func TestRows(t *testing.T) {
	t.Run("float32", func(t *testing.T) { each(t, testRows[float32]) })
	t.Run("float64", func(t *testing.T) { each(t, testRows[float64]) })
}

func testRows[T Float](t *testing.T, k *Table[T]) {
	// The expected value is itself rounded, as often, to float64.
	r, u := source(), unit[T]()+unit[float64]()
	for _, f := range rowRoutines[T]() {
		for _, n := range sizes {
			for skip := range 3 {
				dst, x, y := guard[T](n, skip), guard[T](n, 5*skip).random(r), guard[T](n, 7*skip).random(r)
				if !f.only {
					dst.random(r)
				}
				before := append([]T(nil), dst.data...)
				x0, y0 := append([]T(nil), x.data...), append([]T(nil), y.data...)
				total := f.run(k, dst.data, x.data, y.data)
				dst.intact(t, f.name)
				if !same(x.data, x0) || !same(y.data, y0) {
					t.Fatalf("%s(%d): an input was changed", f.name, n)
				}
				if f.only {
					if !same(before, dst.data) {
						t.Fatalf("%s(%d): dst was changed", f.name, n)
					}
					continue
				}
				sum, size := 0.0, 0.0
				for i, got := range dst.data {
					want, units := f.exact(float64(before[i]), float64(x.data[i]), float64(y.data[i]))
					if !near(float64(got), want, units*u+1e-37) {
						t.Fatalf("%s(%d)[%d]: %v, want %v ± %.2g", f.name, n, i, got, want, units*u)
					}
					sum += float64(got)
					size += math.Abs(float64(got))
				}
				if f.sum && !near(float64(total), sum, float64(n)*u*size) {
					t.Fatalf("%s(%d): sum %v, want %v", f.name, n, total, sum)
				}
			}
		}
	}
}

func TestReductions(t *testing.T) {
	t.Run("float32", func(t *testing.T) { each(t, testReductions[float32]) })
	t.Run("float64", func(t *testing.T) { each(t, testReductions[float64]) })
}

func testReductions[T Float](t *testing.T, k *Table[T]) {
	r, u := source(), unit[T]()
	for _, n := range sizes {
		x, y := guard[T](n, 3).random(r).data, guard[T](n, 1).random(r).data
		var sum, dot, sumSize, dotSize float64
		most := math.Inf(-1)
		for i := range x {
			a, b := float64(x[i]), float64(y[i])
			sum, sumSize = sum+a, sumSize+math.Abs(a)
			dot, dotSize = dot+a*b, dotSize+math.Abs(a*b)
			most = math.Max(most, a)
		}
		bound := float64(n) * u
		if got := k.Sum(x); !near(float64(got), sum, bound*sumSize) {
			t.Errorf("Sum(%d) = %v, want %v", n, got, sum)
		}
		if got := k.Dot(x, y); !near(float64(got), dot, bound*dotSize) {
			t.Errorf("Dot(%d) = %v, want %v", n, got, dot)
		}
		if got := k.Max(x); float64(got) != most {
			t.Errorf("Max(%d) = %v, want %v", n, got, most)
		}
		for i := range x {
			keep := x[i]
			x[i] = T(math.NaN())
			if got := k.Max(x); got == got {
				t.Errorf("Max(%d) = %v with a NaN at %d", n, got, i)
			}
			x[i] = T(math.Inf(1))
			if got := k.Max(x); !math.IsInf(float64(got), 1) {
				t.Errorf("Max(%d) = %v with +Inf at %d", n, got, i)
			}
			x[i] = keep
		}
	}
}
