package mechanism

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// wholeSubjects are mechanisms whose textbook gives the attention matrix of a head.
// Sequences of laws have up to 160 tokens.
func wholeSubjects() []subject {
	list := slices.Concat(landmarkSubjects(), clusterSubjects(), reformerSubjects(), scatterSubjects(), topKSubjects(), favorSubjects(), multipoleSubjects())
	for _, x := range []struct{ share, columns string }{{"heads", "reached"}, {"kv", "all"}, {"none", "reached"}} {
		list = append(list, subject{
			label: "linformer share=" + x.share + " columns=" + x.columns, name: "linformer",
			o: Options{Length: 160, Set: map[string]string{"rank": "6", "share": x.share, "columns": x.columns}},
			whole: func(p numbers) oracle.HeadMatrix {
				f := p["F"]
				if f == nil {
					f = p["E"]
				}
				return oracle.NewLinformer(p["E"], f, 160, 6, x.share == "none", x.columns == "all")
			},
			places: "projections go by the places of keys",
		})
	}
	for _, x := range []struct {
		r, eps, scaled string
		width          int // above 0: each channel has an R of its own
	}{{"1", "0", "false", 0}, {"2", "1e-6", "false", 0}, {"2", "1e-3", "true", 0}, {"2", "1e-3", "true", 3}} {
		s := subject{
			label: "fourier R=" + x.r + " eps=" + x.eps + " scaled=" + x.scaled, name: "fourier",
			o: Options{Set: map[string]string{"R": x.r, "eps": x.eps, "scaled": x.scaled}},
			whole: func(p numbers) oracle.HeadMatrix {
				return oracle.NewFourier(p["R"], map[string]float64{"0": 0, "1e-6": 1e-6, "1e-3": 1e-3}[x.eps], x.scaled == "true")
			},
			average: x.eps == "0",
		}
		if x.width > 0 {
			s.label += " channels=true"
			s.o.Width, s.o.Set["channels"] = x.width, "true"
		}
		list = append(list, s)
	}
	return append(append(list, patternSubjects()...), primalSubjects()...)
}

// textbookOf is the textbook of a subject.
type textbookOf struct {
	*oracle.Mechanism // for mechanisms that an engine computes

	// For mechanisms that compute whole heads:
	whole   func(p numbers) oracle.HeadMatrix
	outputs func(p numbers) oracle.Outputs
	numbers numbers
	params  []string // of numbers those that are learned, in their order
}

// read has the textbook answer unmasked calls as a state that has seen all keys does.
func (b *textbookOf) read() {
	if w := b.Window; w != nil {
		w.Reading = true
	}
}

// wholeTextbook returns the textbook of s with the numbers of m. It moves the parameters of
// m away from their initial values, to numbers that float32 represents.
func wholeTextbook(s subject, m attention.Mechanism) *textbookOf {
	b := &textbookOf{&oracle.Mechanism{}, s.whole, s.outputs, numbers{}, nil}
	key := rng.New(17)
	for i, p := range m.Params().All() {
		if s.given != nil {
			for j, x := range s.given(p.Name, p.Shape) {
				p.Data[j] = float(x)
			}
		}
		for j := range p.Data {
			p.Data[j] = float(float32(p.Data[j]) * float32(1+0.1*key.Fold(uint64(i)).Normal(uint64(j))))
		}
		b.params = append(b.params, p.Name)
	}
	for _, p := range m.Constants().All() {
		for j, x := range p.Data {
			p.Data[j] = float(float32(x))
		}
	}
	readNumbers(b.numbers, m.Params())
	readNumbers(b.numbers, m.Constants())
	return b
}

func readNumbers(to numbers, s *param.Set) {
	for _, p := range s.All() {
		to[p.Name] = make([]float64, len(p.Data))
		for i, x := range p.Data {
			to[p.Name][i] = float64(x)
		}
	}
}

// nudge is the relative change of inputs that shows which results depend on them. Its
// square is negligible beside it, as is the rounding of float64.
const nudge = 0x1p-24

// nudged calls f some times, each with every number of x moved by up to nudge of itself in
// another way, and then puts back what was there.
func nudged(times int, x [][]float64, f func(n int)) {
	for n := range times {
		var before [][]float64
		for i, list := range x {
			before = append(before, slices.Clone(list))
			for j, sign := range signs(rng.New(uint64(n)).Fold(uint64(i)), len(list)) {
				list[j] *= 1 + nudge*sign
			}
		}
		f(n)
		for i := range x {
			copy(x[i], before[i])
		}
	}
}

// signs returns n random signs.
func signs(key rng.Key, n int) []float64 {
	list := make([]float64, n)
	for i := range list {
		list[i] = 2*float64(key.Uint64(uint64(i))&1) - 1
	}
	return list
}

// inputs are the numbers that outputs depend on.
func (b *textbookOf) inputs(c *oracle.Call) [][]float64 {
	list := [][]float64{c.Q.Data, c.K.Data, c.V.Data}
	for _, name := range slices.Sorted(maps.Keys(b.numbers)) {
		list = append(list, b.numbers[name])
	}
	return list
}

// Forward has in Cond, of whole heads, by how many times more than its own size
// the output moves when all numbers move by so much of theirs (docs/numerics.md).
func (b *textbookOf) Forward(c *oracle.Call) *oracle.Result {
	if b.whole == nil {
		return b.Mechanism.Forward(c)
	}
	r := b.result(c)
	size := check.MaxAbs(r.O.Data) + check.MaxAbs(c.V.Data)
	var most float64
	nudged(3, b.inputs(c), func(int) {
		most = max(most, apart(b.result(c).O.Data, r.O.Data))
	})
	for i := range r.Cond {
		if size > 0 {
			r.Cond[i] *= 1 + most/nudge/size
		}
	}
	return r
}

// apart returns the largest difference.
func apart(a, b []float64) float64 {
	var most float64
	for i := range a {
		most = max(most, math.Abs(a[i]-b[i]))
	}
	return most
}

// wholeLimits returns the limits of sums over queries, keys and channels, or over the
// elements of a parameter.
func wholeLimits(m attention.Mechanism, c *attention.Call) check.Limits {
	return check.HeadMatrixLimits[float](c.Q.N + c.K.N + c.Q.D)
}

// gradientSize returns what the rounding errors of an array of gradients are relative to, beside the
// movement of the array with its inputs.
func gradientSize(name string, grads []float64, s subject, sh shape, m attention.Mechanism, oc *oracle.Call, do oracle.Heads) float64 {
	v := check.MaxAbs(oc.V.Data)
	size := max(check.MaxAbs(grads), check.MaxAbs(do.Data)*v)
	if name == "dk" {
		size *= crowd(sh)
	}
	if name == "dtilt" { // sums of a weight's gradient times scale·(k-c), over the queries of a cell, as in crowd
		rows := m.Params().All()[0].Shape
		term := tiltScale(s, sh.d) * (check.MaxAbs(oc.K.Data) + check.MaxAbs(m.Constants().All()[0].Data))
		size = max(check.MaxAbs(grads), check.MaxAbs(do.Data)*v*term) * math.Sqrt(max(1, float64(sh.b*sh.n*sh.h)/float64(rows[0]*rows[1])))
	}
	if s.shared && name == "dq" { // keys are queries over their lengths
		shortest, _ := rowLengths(oc.Q)
		size /= min(1, shortest)
	}
	return size
}

// widened returns x in float64.
func widened(x []float) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

// gradients returns the engine's gradients of every input.
func gradients(t *testing.T, m attention.Mechanism, b *textbookOf, oc *oracle.Call, do oracle.Heads) map[string][]float64 {
	for _, p := range slices.Concat(m.Params().All(), m.Constants().All()) {
		for i, x := range b.numbers[p.Name] {
			p.Data[i] = float(x)
		}
	}
	r := both(t, m, callIn(oc), in(do))
	g := map[string][]float64{"dq": widened(r.g.DQ.Data), "dk": widened(r.g.DK.Data), "dv": widened(r.g.DV.Data)}
	for _, p := range m.Params().All() {
		g["d"+p.Name] = widened(p.Grad)
	}
	return g
}

// result is what whole heads give.
func (b *textbookOf) result(c *oracle.Call) *oracle.Result {
	if b.outputs != nil {
		return b.outputs(b.numbers).Forward(c)
	}
	return b.whole(b.numbers).Forward(c)
}

// loss is Σ do·o by the textbook.
func (b *textbookOf) loss(c *oracle.Call, do oracle.Heads) float64 {
	var sum float64
	for i, x := range b.result(c).O.Data {
		sum += x * do.Data[i]
	}
	return sum
}

// variables are the arrays of which the textbook's loss is a function, by the names of their gradients.
func (b *textbookOf) variables(oc *oracle.Call) map[string][]float64 {
	at := map[string][]float64{"dq": oc.Q.Data, "dk": oc.K.Data, "dv": oc.V.Data}
	for _, name := range b.params {
		at["d"+name] = b.numbers[name]
	}
	return at
}

// steps are half the lengths of difference quotients. A choice of queries or clusters may change within a
// step: the quotient is no derivative then, and that of the shorter step counts. Of the loss, a part of 2⁻⁵³ is
// lost, so quotients err by about 2⁻²⁹ of the limits of float32 over the shortest.
var steps = check.Pick([2]float64{3e-8, 3e-9}, [2]float64{3e-6, 3e-8})

// slope returns the difference quotient of the textbook's loss as all elements of x move by their signs.
func (b *textbookOf) slope(oc *oracle.Call, do oracle.Heads, x, signs []float64, step float64) float64 {
	before := slices.Clone(x)
	at := func(step float64) float64 {
		for i := range x {
			x[i] = before[i] + step*signs[i]
		}
		return b.loss(oc, do)
	}
	slope := (at(step) - at(-step)) / (2 * step)
	copy(x, before)
	return slope
}

// confirm returns the engine's gradients of a call, and holds them against difference quotients of the
// textbook: of each array along four directions of random signs, of which every element is a part, and of two
// elements by themselves.
//
// Along random signs s errors e add up to s·e, whose square is |e|² in the mean over s, whatever e is. As
// s·e is sub-Gaussian, the mean of K such squares exceeds t²|e|² with a probability of at most
// (t²·exp(1-t²))^(K/2): one in 10⁵ for t = 3 and K = 4.
func confirm(t *testing.T, s subject, sh shape, b *textbookOf, oc *oracle.Call, do oracle.Heads) map[string][]float64 {
	t.Helper()
	m, _ := build(t, s, sh.h)
	grads := gradients(t, m, b, oc, do)
	if s.frozen != "" {
		return grads
	}
	l := limits(s, m, callIn(oc))
	for name, x := range b.variables(oc) {
		g := grads[name]
		q := quotients{b: b, oc: oc, do: do, x: x, g: g, limits: l, size: gradientSize(name, g, s, sh, m, oc, do)}
		var all [4][]float64
		for k := range all {
			all[k] = signs(rng.New(19).Fold(uint64(k)), len(x))
		}
		off, limit := q.along(all[:])
		if !(off <= 3*limit) {
			t.Errorf("%s along random signs is off the textbook's slopes by %.3g, the limit is %.3g", name, off, 3*limit)
		}
		for i := len(x) / 4; i < len(x); i += max(1, len(x)/2) {
			one := make([]float64, len(x))
			one[i] = 1
			if off, limit := q.along([][]float64{one}); !(off <= limit) {
				t.Errorf("%s[%d] is %.6g, off the textbook's slope by %.3g, the limit is %.3g", name, i, g[i], off, limit)
			}
		}
	}
	return grads
}

// quotients compares the gradients g of an array x with difference quotients of the textbook.
type quotients struct {
	b      *textbookOf
	oc     *oracle.Call
	do     oracle.Heads
	x, g   []float64
	limits check.Limits
	size   float64 // what errors of an element are relative to, beside its movement
	moved  float64 // |d|, once along was asked for several directions
}

// along returns the root of the mean square of what the quotients along directions differ from the
// gradients by, and a limit of it: with n elements in a direction the limits' factor times √n·size + |d|, where
// d are the movements of all elements with all inputs, in parts of the inputs' own. |d|² is the mean of the
// squares of the movements along several directions. They are the textbook's: inputs move by one rounding of
// float32, by which hardly a choice changes, and float64 still has 29 bits below that.
//
// In float64 the limit is that of the quotients, beside which these errors are nothing.
func (q *quotients) along(directions [][]float64) (off, limit float64) {
	limit = 1e-6 * (1 + check.MaxAbs(q.g))
	slopes := make([]float64, len(directions))
	for k, signs := range directions {
		slopes[k] = q.b.slope(q.oc, q.do, q.x, signs, steps[0])
	}
	if precision == "float32" {
		if len(directions) > 1 {
			var squares float64
			nudged(len(directions), append(q.b.inputs(q.oc), q.do.Data), func(k int) {
				squares += math.Pow((q.b.slope(q.oc, q.do, q.x, directions[k], steps[0])-slopes[k])/nudge, 2)
			})
			q.moved = math.Sqrt(squares / float64(len(directions)))
		}
		var n float64
		for _, sign := range directions[0] {
			n += math.Abs(sign)
		}
		limit += q.limits.Gradient(1, math.Sqrt(n)*q.size+q.moved)
	}
	var sum float64
	for k, signs := range directions {
		var got float64
		for i, sign := range signs {
			got += sign * q.g[i]
		}
		d := math.Abs(got - slopes[k])
		if !(d <= limit) {
			d = math.Abs(got - q.b.slope(q.oc, q.do, q.x, signs, steps[1]))
		}
		sum += d * d
	}
	return math.Sqrt(sum / float64(len(directions))), limit
}

// wholeDerivatives is derivatives for a mechanism that computes whole heads: of
// every element, with heads that share keys and keys that do not exist.
func wholeDerivatives(t *testing.T, s subject) {
	for i, sh := range []shape{
		{b: 1, h: 2, hkv: 1, n: 3, m: 4, d: 5, dv: 2, causal: true},
		{b: 2, h: 2, hkv: 2, n: 5, m: 6, d: 3, dv: 2, mask: true},
	} {
		oc, do := s.fit(sh).call(77 + uint64(i))
		m, book := build(t, s, 2)
		differences(t, book, oc, do, gradients(t, m, book, oc, do))
	}
}

// differences compares gradients with finite differences of the textbook, element by element, in float64.
func differences(t *testing.T, b *textbookOf, oc *oracle.Call, do oracle.Heads, grads map[string][]float64) {
	t.Helper()
	for name, x := range b.variables(oc) {
		limit := 1e-6 * (1 + check.MaxAbs(grads[name]))
		for i := range x {
			by := func(step float64) (want []float64, e float64) {
				want = check.NumericGradientBy(step, func() float64 { return b.loss(oc, do) }, x[i:][:1])
				return want, check.ErrorRatio(grads[name][i:][:1], want, limit)
			}
			want, e := by(3e-5)
			if e > 1 { // a choice may change within the step
				want, e = by(3e-7)
			}
			if e > 1 {
				t.Errorf("%s[%d] is %.6g, by finite differences %.6g, which is %.3g limits away", name, i, grads[name][i], want[0], e)
			}
		}
	}
}

// agreeWhole is agree for a mechanism that computes whole heads.
func agreeWhole(t *testing.T, s subject, sh shape, seed uint64, list []form) (worst float64) {
	sh = s.fit(sh)
	oc, do := sh.call(seed)
	m, book := build(t, s, sh.h)
	c, doT := callIn(oc), in(do)
	want := book.answers(s, sh, seed, oc)
	grads := answer("gradients", s, sh, seed, func() map[string][]float64 { return confirm(t, s, sh, book, oc, do) })
	v := check.MaxAbs(oc.V.Data)
	for _, f := range list {
		if !f.computes(s, oc) {
			continue
		}
		c.Form, c.Chunk = f.form, f.chunk
		l := limits(s, m, c)
		hold := func(o tensor.Heads) {
			err := check.ErrorRatio(o.Data, want.O.Data, l.Output(max(1, check.MaxAbs(want.Cond)), v+check.MaxAbs(want.O.Data)))
			worst = max(worst, err)
			if err > allowance {
				t.Errorf("%v: o is off by %.3g limits", f, err)
			}
		}
		if f.form == attention.Step {
			hold(forward(t, m, c).o)
			continue
		}
		got := both(t, m, c, doT)
		hold(got.o)
		if got.keep.UnseenCount != int64(want.QueriesWithoutKeys) {
			t.Errorf("%v: %d queries see no key, want %d", f, got.keep.UnseenCount, want.QueriesWithoutKeys)
		}
		of := map[string][]float{"dq": got.g.DQ.Data, "dk": got.g.DK.Data, "dv": got.g.DV.Data}
		at := 0
		for _, p := range m.Params().All() {
			of["d"+p.Name] = got.tau[at:][:len(p.Data)]
			at += len(p.Data)
		}
		for name, x := range of { // all forms are one computation
			if !slices.Equal(widened(x), grads[name]) {
				t.Errorf("%v: %s has other bits", f, name)
			}
		}
	}
	return worst
}

// holdSoftmax reports results of a mechanism that is softmax for a call, where they are further from
// those of softmax than both may err.
func holdSoftmax(t *testing.T, name string, got, want *results, oc *oracle.Call, do oracle.Heads) {
	t.Helper()
	_, q := rowLengths(oc.Q)
	_, k := rowLengths(oc.K)
	l, cond, v := check.HeadMatrixLimits[float](oc.Q.N+oc.K.N+oc.Q.D), 1+q*k/math.Sqrt(float64(oc.Q.D)), check.MaxAbs(oc.V.Data)
	for _, x := range []struct {
		name      string
		got, want []float
	}{{"o", got.o.Data, want.o.Data}, {"dq", got.g.DQ.Data, want.g.DQ.Data}, {"dk", got.g.DK.Data, want.g.DK.Data}, {"dv", got.g.DV.Data, want.g.DV.Data}} {
		limit := l.Output(cond, 2*v)
		if x.name != "o" {
			limit = l.Gradient(cond, max(check.MaxAbs(x.want), check.MaxAbs(do.Data)*v))
		}
		if e := check.ErrorRatio(x.got, widened(x.want), 2*limit); e > 1 {
			t.Errorf("%s: %s is off softmax by %.3g limits", name, x.name, e)
		}
	}
}

// rowLengths returns the lengths of the shortest and of the longest row of x.
func rowLengths(x oracle.Heads) (least, most float64) {
	least = math.Inf(1)
	eachRow(x, func(_ int, row []float64) {
		length := scratch.Norm2(row)
		least, most = min(least, length), max(most, length)
	})
	return least, most
}

// tiltScale returns the scale of the scores of a subject.
func tiltScale(s subject, d int) float64 {
	if text, ok := s.o.Set["scale"]; ok {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			panic(err)
		}
		return x
	}
	return 1 / math.Sqrt(float64(d))
}
