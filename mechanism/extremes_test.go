package mechanism

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/tensor"
)

// extreme is a kind of input at the ends of a type's range. Each function gives element
// c of token i from a standard normal number; nil: that number.
type extreme struct {
	name    string
	q, k, v func(x float64, i, c int) float64
	double  bool // beyond the range of float32
	always  bool // every subject meets it, others the first of each mechanism, or with -long
}

// by returns x multiplied by a factor.
func by(factor float64) func(float64, int, int) float64 {
	return func(x float64, _, _ int) float64 { return x * factor }
}

// always returns one number.
func always(y float64) func(float64, int, int) float64 {
	return func(float64, int, int) float64 { return y }
}

func zero(_ float64, i, c int) float64 {
	if (i+c)%2 == 0 {
		return math.Copysign(0, -1)
	}
	return 0
}

func oneHot(_ float64, i, c int) float64 {
	if i%4 == c%4 {
		return 1
	}
	return 0
}

// sameToken has a number for each channel, whatever the token.
func sameToken(_ float64, _, c int) float64 { return 0.5 + float64(c%3) }

// around returns numbers near a centre.
func around(centre float64) func(float64, int, int) float64 {
	return func(x float64, _, _ int) float64 { return centre + x }
}

var extremeKinds = []extreme{
	{name: "q and k of 1e30", q: by(1e30), k: by(1e30)},
	{name: "q and k of 1e20", q: by(1e20), k: by(1e20), always: true},
	{name: "q and k of 1e15", q: by(1e15), k: by(1e15)},
	{name: "q and k of 1e-30", q: by(1e-30), k: by(1e-30)},
	{name: "q of 1e30, k of 1e-30", q: by(1e30), k: by(1e-30)},
	{name: "q of 1e-30, k of 1e30", q: by(1e-30), k: by(1e30)},
	{name: "q and k of 0", q: zero, k: zero},
	{name: "k of 0", k: zero},
	{name: "q and k subnormal", q: by(1e-40), k: by(1e-40)},
	{name: "all subnormal", q: by(1e-40), k: by(1e-40), v: by(1e-40), always: true},
	{name: "tokens alike", q: sameToken, k: sameToken},
	{name: "tokens and values alike", q: sameToken, k: sameToken, v: always(3)},
	{name: "rows one-hot", q: oneHot, k: oneHot},
	{name: "scores of 1e9", q: by(3e4), k: by(3e4)},
	{name: "scores of 1e11", q: by(3e5), k: by(3e5)},
	{name: "equal scores of 1e10", q: always(1e5), k: always(1e5), always: true},
	{name: "equal scores of -1e10", q: always(-1e5), k: always(1e5)},
	{name: "scores about -100", q: always(-10), k: around(10)},
	{name: "scores about -1000", q: always(-30), k: around(30), always: true},
	{name: "q and k about -45", q: always(-45), k: around(-45), always: true},
	{name: "q and k about -52", q: always(-52), k: around(-52), always: true},
	{name: "q and k about -400", q: always(-400), k: around(-400)},
	{name: "products of 1e-10", q: by(1e-5), k: by(1e-5), always: true},
	{name: "v of 1e30", v: by(1e30)},
	{name: "v of 1e-30", v: by(1e-30)},
	{name: "v of 1e38", v: by(1e38), always: true},
	{name: "v of 0", v: zero},
	{name: "q, k and v of 1e10", q: by(1e10), k: by(1e10), v: by(1e10)},

	{name: "q and k of 1e100", q: by(1e100), k: by(1e100), double: true},
	{name: "q and k of 1e200", q: by(1e200), k: by(1e200), double: true},
	{name: "q and k of 1e-200", q: by(1e-200), k: by(1e-200), double: true},
	{name: "v of 1e300", v: by(1e300), double: true},
	{name: "v of 1e-310", v: by(1e-310), double: true},
	{name: "q and k of 1e-310", q: by(1e-310), k: by(1e-310), double: true},
}

// extremeShapes are a few tokens of a few channels, and the smallest call.
var extremeShapes = []shape{
	{name: "6 tokens", b: 1, h: 2, hkv: 1, n: 6, m: 6, d: 4, dv: 3, causal: true},
	{name: "1 token", b: 1, h: 1, hkv: 1, n: 1, m: 1, d: 1, dv: 1, causal: true},
}

// fill puts numbers of a kind into a call, which float32 holds unless the kind is
// beyond it.
func (x *extreme) fill(c *oracle.Call) {
	for _, a := range []struct {
		to oracle.Heads
		f  func(float64, int, int) float64
	}{{c.Q, x.q}, {c.K, x.k}, {c.V, x.v}} {
		for i := range a.to.Data {
			if a.f != nil {
				a.to.Data[i] = a.f(a.to.Data[i], i/a.to.D%a.to.N, i%a.to.D)
			}
			if y := &a.to.Data[i]; !x.double {
				*y = float64(float32(max(min(*y, math.MaxFloat32), -math.MaxFloat32)))
			}
		}
	}
}

// firstSubjects are the labels of the first subject of each kind.
var firstSubjects = sync.OnceValue(func() map[string]bool {
	first, met := map[string]bool{}, kinds{}
	for _, s := range subjects() {
		first[s.label] = met.isNew(s)
	}
	return first
})

// extremes is the law that finite input gives finite output, within the limits where
// the textbook's is well-conditioned, or that the rows that are not finite are counted.
func extremes(t *testing.T, s subject) {
	single := check.UnitRoundoff[float]() == 0x1p-24
	all := suite.IsLong() || firstSubjects()[s.label]
	for _, sh := range extremeShapes {
		sh := s.fit(sh)
		for i := range extremeKinds {
			x := &extremeKinds[i]
			if x.double && single || !all && !x.always {
				continue
			}
			oc, _ := sh.call(uint64(500 + i))
			x.fill(oc)
			m, book := build(t, s, sh.h)
			e := extremeCall{t: t, s: s, sh: sh, name: sh.name + ", " + x.name, m: m, book: book, oc: oc, want: book.Forward(normalisable(&s, oc))}
			e.hold()
		}
	}
}

// normalisable returns c with zeros for rows that no normalisation reaches
// (docs/numerics.md), where the subject has one.
func normalisable(s *subject, c *oracle.Call) *oracle.Call {
	x := *c
	for _, a := range []*oracle.Heads{&x.Q, &x.K} {
		if s.book.Norm != oracle.NoNorm && check.MaxAbs(a.Data) < 0x1p-120 {
			*a = oracle.NewHeads(a.B, a.H, a.N, a.D)
		}
	}
	return &x
}

type extremeCall struct {
	t    *testing.T
	s    subject
	sh   shape
	name string
	m    attention.Mechanism
	book *textbookOf
	oc   *oracle.Call
	want *oracle.Result

	weak bool // a form has counted ill-conditioned rows
}

// hold holds every form of the call to the law.
func (e *extremeCall) hold() {
	for _, f := range []form{{attention.Direct, 0}, {attention.Linear, 0}, {attention.Linear, 2}, {attention.Step, 0}} {
		if !f.computes(e.s, e.oc) {
			continue
		}
		c := callIn(e.oc)
		c.Form, c.Chunk = f.form, f.chunk
		out := poisoned(c.Q.B, c.Q.H, c.Q.N, c.V.D)
		var keep *attention.Saved
		if f.form != attention.Step {
			keep = new(attention.Saved)
		}
		e.judge(f.String(), c, out, keep, e.m.Forward(out, c, keep))
	}
	if noSegments(e.s, e.m.Traits()) != "" || e.sh.n < 2 {
		return
	}
	// Two calls, the second after the state that the first leaves.
	c := callIn(e.oc)
	out := poisoned(c.Q.B, c.Q.H, c.Q.N, c.V.D)
	state, err := e.m.NewState(c.Shape())
	if err != nil {
		e.t.Fatal(err)
	}
	var odd attention.NonFiniteError // rows of both calls
	half := e.sh.n / 2
	for _, p := range [][2]int{{0, half}, {half, e.sh.n}} {
		part := *c
		part.Q, part.K, part.V = c.Q.Tokens(p[0], p[1]), c.K.Tokens(p[0], p[1]), c.V.Tokens(p[0], p[1])
		part.Init, part.Final = state, state
		if p[0] == 0 {
			part.Init = nil
		}
		err := e.m.Forward(out.Tokens(p[0], p[1]), &part, nil)
		var bad *attention.NonFiniteError
		if errors.As(err, &bad) {
			if odd.Rows == 0 {
				odd.First = bad.First
				odd.First[2] += p[0]
			}
			odd.Rows += bad.Rows
		} else if err != nil {
			e.t.Fatalf("%s: segments: %v", e.name, err)
		}
	}
	if err = nil; odd.Rows > 0 {
		err = &odd
	}
	e.judge("segments", c, out, nil, err)
}

// judge compares the result of a form with the law.
func (e *extremeCall) judge(form string, c *attention.Call, out tensor.Heads, keep *attention.Saved, err error) {
	t := e.t
	t.Helper()
	var counted int64
	var bad *attention.NonFiniteError
	switch {
	case errors.As(err, &bad):
		counted = bad.Rows
	case err != nil:
		t.Errorf("%s: %s: %v", e.name, form, err)
		return
	case keep != nil:
		counted, e.weak = keep.NonFinite, e.weak || keep.WeakCount > 0
	}
	rows, first := attention.NonFinite(out)
	if rows != counted {
		t.Errorf("%s: %s: %d rows are not finite, %d are counted", e.name, form, rows, counted)
	}
	if bad != nil && bad.First != first {
		t.Errorf("%s: %s: the first row that is not finite is %v, the error has %v", e.name, form, first, bad.First)
	}
	l := limits(e.s, e.m, c)
	v, dv := check.MaxAbs(e.oc.V.Data), e.sh.dv
	for i, cond := range e.want.Cond {
		got, ref := out.Data[i*dv:][:dv], e.want.O.Data[i*dv:][:dv]
		where := fmt.Sprintf("%s: %s: row %d is %.4g, of %.4g (cond %.3g, den %.3g)", e.name, form, i, got, ref, cond, e.want.Den[i])
		size := e.want.Factor[i]*v + check.MaxAbs(ref)
		if math.IsNaN(check.MaxAbs(got)) || math.IsInf(check.MaxAbs(got), 0) {
			if !e.mayOverflow(i) {
				t.Errorf("%s: it is not finite for no reason", where)
			}
			continue
		}
		if e.weak && check.MaxAbs(got) == 0 {
			continue // a row that is counted
		}
		if e.averages() && !e.between(i, got) {
			t.Errorf("%s: an average is beyond what it is of", where)
		}
		if !e.conditioned(l, i) || !(size <= math.MaxFloat64) {
			continue
		}
		if r := check.ErrorRatio(got, ref, l.Output(cond, size)+e.underflow(i)); r > allowance {
			t.Errorf("%s: it is off by %.3g limits", where, r)
		}
	}
}

// largest and least are the ends of T's range.
func (e *extremeCall) largest() float64 {
	if check.UnitRoundoff[float]() == 0x1p-24 {
		return math.MaxFloat32
	}
	return math.MaxFloat64
}

func (e *extremeCall) least() float64 {
	if check.UnitRoundoff[float]() == 0x1p-24 {
		return math.SmallestNonzeroFloat32
	}
	return math.SmallestNonzeroFloat64
}

// mayOverflow reports that numbers on the way to row i may leave T's range: squares of
// rows, as norms have them, features, scores, weights and their products with values.
func (e *extremeCall) mayOverflow(i int) bool {
	q, k, v := check.MaxAbs(e.oc.Q.Data), check.MaxAbs(e.oc.K.Data), check.MaxAbs(e.oc.V.Data)
	degree := max(2, len(e.s.book.Coef)-1)
	row := math.Pow(max(q, k, 1), float64(degree))
	weights := math.Pow(max(q*k, 1), float64(degree))
	if e.s.features != nil && max(q, k) > 20 {
		return true // exponentials of rows
	}
	return !(max(row, weights*max(v, 1)) < e.largest()*1e-6)
}

// conditioned reports whether the limit applies to row i. The loss of whole heads
// is measured by moves of their numbers, which must not move outputs by much of
// themselves; a choice among scores below the least number is none, nor one among
// weights that all are 0 but the largest.
func (e *extremeCall) conditioned(l check.Limits, i int) bool {
	cond := e.want.Cond[i]
	if e.s.whole != nil {
		score := check.MaxAbs(e.oc.Q.Data) * check.MaxAbs(e.oc.K.Data)
		if cond*nudge > 1./16 || score > 0 && score < 1e6*e.least() || e.s.name == "improved-clustered" && score > 1e9 {
			return false
		}
	}
	if e.s.features != nil && max(check.MaxAbs(e.oc.Q.Data), check.MaxAbs(e.oc.K.Data))*check.UnitRoundoff[float]() > 1e-3 {
		return false // angles are rounded by that much
	}
	return cond > 0 && l.Output(cond, 1) <= 1./8
}

// averages reports that outputs are averages of values, by weights that are never
// negative.
func (e *extremeCall) averages() bool {
	return e.s.sums() && e.m.Traits().Positive && !e.s.book.OutputNorm && (e.s.book.Window == nil || !e.s.book.Window.Separate)
}

// between reports that an output lies between the least and the largest value of each
// channel, but for rounding.
func (e *extremeCall) between(i int, got []float) bool {
	c := e.oc
	group := c.Q.H / c.K.H
	v := c.V.Head(i/(c.Q.H*c.Q.N), i/c.Q.N%c.Q.H/group)
	for d, x := range got {
		lo, hi := math.Inf(1), math.Inf(-1)
		for j := range v.Rows {
			lo, hi = min(lo, v.Row(j)[d]), max(hi, v.Row(j)[d])
		}
		slack := 1e-5*max(math.Abs(lo), math.Abs(hi)) + e.underflow(i)
		if y := float64(x); y < lo-slack || y > hi+slack {
			return false
		}
	}
	return true
}

// underflow is what weights, and their products with values, may lose that are rounded
// to multiples of the least number, of the output of row i.
func (e *extremeCall) underflow(i int) float64 {
	den := math.Abs(e.want.Den[i])
	if e.s.book.Exp {
		den = 1
	}
	if e.s.whole != nil { // products of a few matrices
		return 1e4 * e.least()
	}
	return max(float64(e.sh.m)*e.least()/den, 4*e.least())
}

// A log_g far beyond the range of exp gives what -1e4 gives: the factor is 0.
func TestDecaysBeyondTheRangeAreZero(t *testing.T) {
	t.Run("far scores", func(t *testing.T) {
		sh := shape{b: 1, h: 1, hkv: 1, n: 300, m: 300, d: 4, dv: 3, causal: true, decay: 1}
		decaysAlike(t, "softmax", nil, sh, func(c *oracle.Call) {
			for i := range c.Q.Data {
				c.Q.Data[i] = 200
				if i < 280*4 {
					c.K.Data[i] = -math.Abs(c.K.Data[i])
				} else {
					c.K.Data[i] = 200
				}
			}
		}, map[int]float64{280: -math.MaxFloat32})
	})
	sh := shape{b: 1, h: 1, hkv: 1, n: 12, m: 12, d: 4, dv: 3, causal: true, mask: true, decay: 1}
	hidden := func(c *oracle.Call) {
		for j := range c.KeyMask {
			c.KeyMask[j] = j < 6 || j > 7
		}
	}
	t.Run("hidden keys", func(t *testing.T) {
		if precision == "float32" {
			decaysAlike(t, "linear", map[string]string{"window": "3"}, sh, hidden, map[int]float64{6: -3e10, 7: -1000})
			return
		}
		decaysAlike(t, "linear", map[string]string{"window": "3"}, sh, hidden, map[int]float64{6: -math.MaxFloat64, 7: -math.MaxFloat64})
		decaysAlike(t, "fastmax", map[string]string{"window": "4"}, sh, hidden, map[int]float64{6: -math.MaxFloat64, 7: -math.MaxFloat64})
	})
}

// decaysAlike compares a call whose log_g is given for some tokens with one that has -1e4 there.
func decaysAlike(t *testing.T, name string, set map[string]string, sh shape, change func(*oracle.Call), logG map[int]float64) {
	t.Helper()
	m, err := New(name, Options{Width: sh.d, Set: set})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []form{{attention.Direct, 0}, {attention.Linear, 4}, {attention.Step, 4}} {
		if f.form != attention.Direct && name == "softmax" {
			continue
		}
		var runs [2]*results
		for i := range runs {
			oc, do := sh.call(90)
			change(oc)
			for j := range oc.LogG.Data {
				oc.LogG.Data[j] = 0
			}
			for j, g := range logG {
				if oc.LogG.Data[j] = -1e4; i > 0 {
					oc.LogG.Data[j] = g
				}
			}
			c := callIn(oc)
			if c.Form, c.Chunk = f.form, f.chunk; f.form == attention.Step {
				runs[i] = forward(t, m, c)
			} else {
				runs[i] = both(t, m, c, in(do))
			}
		}
		a, b := runs[0], runs[1]
		for i, x := range [][2][]float{{a.o.Data, b.o.Data}, {a.g.DQ.Data, b.g.DQ.Data}, {a.g.DK.Data, b.g.DK.Data}, {a.g.DV.Data, b.g.DV.Data}, {a.g.DLogG.Data, b.g.DLogG.Data}} {
			var want []float64
			for _, y := range x[0] {
				want = append(want, float64(y))
			}
			if e := check.ErrorRatio(x[1], want, 1e-5*check.MaxAbs(want)); e > 1 {
				t.Errorf("%s %v, %v: array %d differs by %.3g limits", name, set, f, i, e)
			}
		}
	}
}
