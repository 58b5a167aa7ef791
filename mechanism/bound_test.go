package mechanism

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/suite"
)

// adversary turns random inputs into some that round badly.
type adversary struct {
	name string
	turn func(c *oracle.Call)
}

// eachRow calls f for the rows of x.
func eachRow(x oracle.Heads, f func(i int, row []float64)) {
	for b := range x.B {
		for h := range x.H {
			for i := range x.N {
				f(i, x.Head(b, h).Row(i))
			}
		}
	}
}

// rounded makes every number one that float32 has.
func rounded(c *oracle.Call) {
	for _, x := range [][]float64{c.Q.Data, c.K.Data, c.V.Data} {
		for i := range x {
			x[i] = float64(float32(x[i]))
		}
	}
}

var adversaries = []adversary{
	{"random", func(*oracle.Call) {}},
	{"values that cancel", func(c *oracle.Call) {
		eachRow(c.V, func(j int, row []float64) {
			for e := range row {
				row[e] = float64(1-2*(j%2)) * (1 + row[e]/1e4)
			}
		})
	}},
	{"one token repeated", func(c *oracle.Call) {
		for b := range c.K.B {
			for h := range c.K.H {
				for j := 1; j < c.K.N; j++ {
					copy(c.K.Head(b, h).Row(j), c.K.Head(b, h).Row(0))
					copy(c.V.Head(b, h).Row(j), c.V.Head(b, h).Row(0))
				}
			}
		}
	}},
	{"aligned and opposed", func(c *oracle.Call) {
		at := append([]float64{}, c.Q.Head(0, 0).Row(0)...)
		for _, x := range []oracle.Heads{c.Q, c.K} {
			eachRow(x, func(i int, row []float64) {
				for e := range row {
					row[e] = at[e]*float64(1-2*(i%2)) + row[e]*1e-4
				}
			})
		}
	}},
	{"means far from 0", func(c *oracle.Call) {
		for _, x := range []oracle.Heads{c.Q, c.K} {
			eachRow(x, func(i int, row []float64) {
				for e := range row {
					row[e] += 3
				}
				row[0] += 20
			})
		}
	}},
	{"one-hot", func(c *oracle.Call) {
		for k, x := range []oracle.Heads{c.Q, c.K} {
			eachRow(x, func(i int, row []float64) {
				clear(row)
				row[(len(row)-1+3*k+i/2*k)%len(row)] = 1
			})
		}
	}},
	{"large", func(c *oracle.Call) {
		for _, x := range [][]float64{c.Q.Data, c.K.Data} {
			for i := range x {
				x[i] *= 0x1p10
			}
		}
	}},
	{"small", func(c *oracle.Call) {
		for _, x := range [][]float64{c.Q.Data, c.K.Data} {
			for i := range x {
				x[i] *= 0x1p-12
			}
		}
	}},
}

// TestErrorsStayWithinTheBound holds the forms against Plan.Bound, which is an
// inequality and not a limit of tests.
func TestErrorsStayWithinTheBound(t *testing.T) {
	none, met := 0, kinds{}
	for _, s := range subjects() {
		m, _ := build(t, s, 1)
		if m.Plan(attention.Shape{B: 1, H: 1, Hkv: 1, N: 8, M: 8, D: 5, Dv: 3}).Bound == 0 {
			none++
			continue
		}
		if !met.isNew(s) && !suite.IsLong() {
			continue
		}
		t.Run(s.label, func(t *testing.T) {
			t.Parallel()
			bounded(t, s)
		})
	}
	t.Logf("%d of %d have no bound", none, len(subjects()))
}

func bounded(t *testing.T, s subject) {
	var worst float64
	held := 0
	for i, a := range adversaries {
		for k, sh := range []shape{
			{b: 1, h: 2, hkv: 1, n: 40, m: 40, d: 5, dv: 3, causal: true},
			{b: 1, h: 1, hkv: 1, n: 5, m: 200, d: 16, dv: 2},
			{b: 1, h: 1, hkv: 1, n: 1, m: 2048, d: 5, dv: 2},
			{b: 1, h: 1, hkv: 1, n: 1, m: 2, d: 89, dv: 4},
		} {
			if sh.m > 1000 && a.name != "one token repeated" || sh.d > 80 && a.name != "one-hot" {
				continue
			}
			if len(s.book.Coef) > 4 {
				sh.d = 4
			}
			oc, _ := s.fit(sh).call(uint64(100*i + k))
			a.turn(oc)
			rounded(oc)
			for _, f := range []form{{attention.Direct, 0}, {attention.Linear, 0}, {attention.Linear, 7}, {attention.Step, 8}} {
				if !f.computes(s, oc) {
					continue
				}
				x, n := withinBound(t, s, oc, f, a.name)
				worst = max(worst, x)
				held += n
			}
		}
	}
	if held == 0 {
		t.Error("no row is held")
	}
	t.Logf("%d rows; the largest error is %.3f of its bound", held, worst)
}

// withinBound returns the largest error of a form in parts of its bound, and how
// many rows have one.
func withinBound(t *testing.T, s subject, oc *oracle.Call, f form, name string) (worst float64, held int) {
	t.Helper()
	m, book := build(t, s, oc.Q.H)
	c := callIn(oc)
	c.Form, c.Chunk = f.form, f.chunk
	want := book.Forward(oc)
	bound := m.Plan(c.Shape()).Bound
	if !(bound > 0) {
		t.Fatalf("%v: the bound is %v", f, bound)
	}
	o := output(c)
	if err := m.Forward(o, c, nil); err != nil {
		t.Fatal(err)
	}
	v := check.MaxAbs(oc.V.Data)
	group := oc.Q.H / oc.K.H
	for b := range oc.Q.B {
		for h := range oc.Q.H {
			for i := range oc.Q.N {
				at := (b*oc.Q.H+h)*oc.Q.N + i
				var seen []int
				for j, w := range want.W.Head(b, h).Row(i) {
					if w != 0 || !oc.Causal || j <= i+oc.K.N-oc.Q.N {
						seen = append(seen, j)
					}
				}
				if len(seen) == 0 || math.IsInf(want.Den[at], 0) {
					continue // nothing is said of it, or it is too large for the textbook
				}
				kappa := conditionOf(book.Mechanism, oc, want.Den[at], b, h, h/group, i, seen)
				if bound*kappa > 1./6 {
					continue
				}
				held++
				ref := want.O.Data[at*oc.V.D:][:oc.V.D]
				// The textbook errs too, by as much in float64.
				own := kappa * 0x1p-53 * float64(50+len(seen)) * (v + check.MaxAbs(ref))
				limit := bound*kappa*(v+check.MaxAbs(ref)) + own
				e := check.ErrorRatio(o.Head(b, h).Row(i), ref, limit)
				worst = max(worst, e)
				if e > 1 {
					t.Errorf("%s, %v: row %d of head %d errs by %.3g of its bound", name, f, i, h, e)
				}
			}
		}
	}
	return worst, held
}

// conditionOf returns the condition that multiplies Plan.Bound, for a query and the keys it
// sees.
func conditionOf(book *oracle.Mechanism, c *oracle.Call, den float64, b, h, kh, i int, seen []int) float64 {
	w := book.Window
	if w == nil {
		sum, largest := sizes(book, c, b, h, kh, i, seen)
		if book.Exp {
			return 1 + largest
		}
		return (sum + book.Eps) / math.Abs(den)
	}
	var inside, outside []int
	for _, j := range seen {
		if p := i + c.K.N - c.Q.N; j > p-w.Width && j < p+w.Width {
			inside = append(inside, j)
		} else {
			outside = append(outside, j)
		}
	}
	gamma := w.Gamma[h%len(w.Gamma)]
	near := &oracle.Mechanism{Exp: true}
	_, largest := sizes(near, c, b, h, kh, i, inside)
	if w.Separate {
		sum, _ := sizes(book, c, b, h, kh, i, seen)
		return (sum+book.Eps)/math.Abs(den)*(1+gamma) + 2*gamma*(1+largest)
	}
	sum, _ := sizes(book, c, b, h, kh, i, outside)
	sum = (sum + book.Eps) / math.Exp(den) // what is kept is its logarithm
	for _, j := range inside {
		var score float64
		for e, y := range c.Q.Head(b, h).Row(i) {
			score += y * c.K.Head(b, kh).Row(j)[e]
		}
		sum += gamma * math.Exp(score/math.Sqrt(float64(c.Q.D))-den) * (1 + largest)
	}
	return sum
}

// sizes returns the sum of f̄(|a|·|b|) of a query and keys, and the largest of
// these products.
func sizes(book *oracle.Mechanism, c *oracle.Call, b, h, kh, i int, keys []int) (sum, largest float64) {
	length := func(x []float64) float64 {
		var sum float64
		for _, y := range x {
			if book.Map != nil {
				y = book.Map.F(y)
			}
			sum += y * y
		}
		return math.Sqrt(sum)
	}
	factor := book.Scale
	if factor == 0 {
		factor = 1 / math.Sqrt(float64(c.Q.D))
	}
	if len(book.Tau) > 0 {
		factor *= book.Tau[h]
	}
	for _, j := range keys {
		var rho float64
		switch book.Norm {
		case oracle.Standard:
			rho = float64(c.Q.D)
		case oracle.NoNorm:
			rho = length(c.Q.Head(b, h).Row(i)) * length(c.K.Head(b, kh).Row(j))
		default:
			rho = 1
		}
		rho *= math.Abs(factor)
		largest = max(largest, rho)
		x := 0.0
		for l := len(book.Coef) - 1; l >= 0; l-- {
			x = x*rho + math.Abs(book.Coef[l])
		}
		sum += x
	}
	return sum, largest
}

// All channels of a one-hot row but one are equal, so that rounding errors of its features
// have one sign and do not average out: the limit has F and C in place of their roots. The
// linear form makes monomials of reflected rows, in which a one-hot last channel fills all
// channels. Their condf is up to 100 times the condf of the original rows.
func TestOneHotRowsErrByTheRowsThatFeaturesAreMadeOf(t *testing.T) {
	seeds := uint64(1)
	if suite.IsLong() {
		seeds = 4
	}
	for p := 1; p <= 3; p++ {
		m, err := New("fastmax", Options{Order: p})
		if err != nil {
			t.Fatal(err)
		}
		book := oracle.Mechanism{Norm: oracle.Standard, Scale: 1, Coef: oracle.TaylorCoef(p)}
		var worst, root, plain float64
		for _, d := range []int{2, 3, 22, 81, 89, 118, 129} {
			for _, hot := range [][3]int{{d - 1, 0, 0}, {d - 1, 1, 1}, {0, d / 2, 0}, {0, d / 2, 1}, {0, d / 2, d - 1}, {d - 1, d - 1, 0}} {
				for seed := range seeds {
					oc, _ := shape{b: 1, h: 1, hkv: 1, n: 1, m: 2, d: d, dv: 4}.call(300 + seed)
					rows := [3][]float64{oc.Q.Data, oc.K.Data[:d], oc.K.Data[d:]}
					for i, row := range rows {
						clear(row)
						row[min(hot[i], d-1)] = 1
					}
					c := callIn(oc)
					c.Form = attention.Linear
					got, want := output(c), book.Forward(oc).O
					if err := m.Forward(got, c, nil); err != nil {
						t.Fatal(err)
					}
					condf, reflected := oneHotCond(p, rows[0], rows[1:])
					size := check.MaxAbs(oc.V.Data) + check.MaxAbs(want.Data)
					f := m.Plan(c.Shape()).F
					limit := (8 + float64(f) + 2) * 0x1p-24 * reflected * size
					worst = max(worst, check.ErrorRatio(got.Data, want.Data, limit))
					root = max(root, check.ErrorRatio(got.Data, want.Data, check.LinearLimits[float32](f, 2).Output(reflected, size)))
					plain = max(plain, check.ErrorRatio(got.Data, want.Data, check.LinearLimits[float32](f, 2).Output(condf, size)))
				}
			}
		}
		t.Logf("p = %d: the largest error is %.3f limits, %.2f of those of random rows, %.2f of those with condf of the rows as they were", p, worst, root, plain)
		if worst > 1 {
			t.Errorf("p = %d: an error is %.3f limits", p, worst)
		}
	}
}

// oneHotCond returns condf of a query and keys of fastmax with scale 1: of normalised
// rows, and of these reflected.
func oneHotCond(p int, q []float64, keys [][]float64) (condf, reflected float64) {
	f, coef := func(x float64) (y float64) {
		for l := p; l >= 0; l-- {
			y = y*x + oracle.TaylorCoef(p)[l]
		}
		return y
	}, 1/(math.Sqrt(float64(len(q)))-1)
	normal := func(x []float64) []float64 {
		var mean, square float64
		for _, y := range x {
			mean += y / float64(len(x))
		}
		for _, y := range x {
			square += (y - mean) * (y - mean) / float64(len(x))
		}
		z := make([]float64, len(x))
		for i, y := range x {
			z[i] = (y - mean) / math.Sqrt(square)
		}
		return z
	}
	a := normal(q)
	var g float64
	for _, key := range keys {
		b := normal(key)
		var dot, size, turned float64
		for i := range a {
			dot += a[i] * b[i]
			size += math.Abs(a[i] * b[i])
			if last := len(a) - 1; i < last {
				turned += math.Abs((a[i] + a[last]*coef) * (b[i] + b[last]*coef))
			}
		}
		g, condf, reflected = g+f(dot), condf+f(size), reflected+f(turned)
	}
	return condf / math.Abs(g), reflected / math.Abs(g)
}

// The bound of long streams is one rounding for each feature, token of a chunk
// and chunk, and a little.
func TestPlannedBoundCountsRoundings(t *testing.T) {
	u := check.UnitRoundoff[float]()
	m, err := New("taylorshift", Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1 << 12, 1 << 16, 1 << 20} {
		s := attention.Shape{B: 1, H: 1, Hkv: 1, N: n, M: n, D: 16, Dv: 16, Causal: true, Form: attention.Linear}
		p := m.Plan(s)
		roundings := float64(p.F) + float64(p.Chunk) + float64(n/p.Chunk)
		if got := p.Bound / u; got < roundings || got > 2*roundings+400 {
			t.Errorf("N = %d: the bound is %.0f roundings, the sums take %.0f", n, got, roundings)
		}
	}
	// Compensated sums err by what a chunk's do, until 2u² a chunk adds up.
	s := attention.Shape{B: 1, H: 1, Hkv: 1, N: 1 << 30, M: 1 << 30, D: 16, Dv: 16, Causal: true, Form: attention.Step, Carry: attention.Compensated}
	p := m.Plan(s)
	roundings := float64(p.F) + float64(p.Chunk) + 1 + 2*u*float64(s.M/p.Chunk)
	if got := p.Bound / u; got < roundings || got > 2*roundings+400 {
		t.Errorf("compensated: the bound is %.0f roundings, the sums take %.0f", got, roundings)
	}
	if p := m.Plan(attention.Shape{B: 1, H: 1, Hkv: 1, N: 1 << 30, M: 1 << 30, D: 16, Dv: 16, Form: attention.Direct}); precision == "float32" && !math.IsInf(p.Bound, 1) {
		t.Errorf("2³⁰ keys one after another: the bound is %v", p.Bound)
	}
}
