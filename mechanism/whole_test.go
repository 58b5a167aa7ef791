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
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
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

// nudges is the number of times that it is done.
const nudges = 3

// gradientNudge is nudge for gradients of the engine, whose rounding is negligible beside it.
var gradientNudge = check.Pick(0x1p-10, nudge)

// nudged calls f with every number of x moved by up to nudge of itself, some
// times, and then puts back what was there.
func nudged(nudge float64, x [][]float64, f func()) {
	for n := range uint64(nudges) {
		var before [][]float64
		for i, list := range x {
			before = append(before, slices.Clone(list))
			key := rng.New(n).Fold(uint64(i))
			for j := range list {
				list[j] *= 1 + nudge*(2*float64(key.Uint64(uint64(j))&1)-1)
			}
		}
		f()
		for i := range x {
			copy(x[i], before[i])
		}
	}
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
	nudged(nudge, b.inputs(c), func() {
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

// chosen is the number of elements of each array whose derivative is compared
// with finite differences in larger calls.
const chosen = 3

// confirmed are gradients that finite differences of the textbook confirm.
type confirmed struct {
	grads map[string][]float64
	moved map[string]float64 // by nudges, over nudge
}

// size returns what the errors of an array of gradients are relative to.
func (a *confirmed) size(name string, s subject, sh shape, m attention.Mechanism, oc *oracle.Call, do oracle.Heads) float64 {
	v := check.MaxAbs(oc.V.Data)
	size := max(check.MaxAbs(a.grads[name]), check.MaxAbs(do.Data)*v)
	if name == "dk" {
		size *= crowd(sh)
	}
	if name == "dtilt" { // sums of a weight's gradient times scale·(k-c), over the queries of a cell, as in crowd
		rows := m.Params().All()[0].Shape
		term := tiltScale(s, sh.d) * (check.MaxAbs(oc.K.Data) + check.MaxAbs(m.Constants().All()[0].Data))
		size = max(check.MaxAbs(a.grads[name]), check.MaxAbs(do.Data)*v*term) * math.Sqrt(max(1, float64(sh.b*sh.n*sh.h)/float64(rows[0]*rows[1])))
	}
	if s.shared && name == "dq" { // keys are queries over their lengths
		size /= min(1, shortest(oc.Q))
	}
	return size + a.moved[name]
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

// differences compares gradients with finite differences of the textbook, for at most
// `most` elements of each array. A choice of queries or clusters may change within a step.
// The difference over such a step is no derivative, and is compared over a shorter step.
//
// limit returns what the elements of an array may err beyond the differences. If it is not nil,
// the sum of all elements with random signs is compared, too: n errors of independent signs
// exceed five times √n of them less than once in 10⁵ cases.
func differences(t *testing.T, b *textbookOf, oc *oracle.Call, do oracle.Heads, grads map[string][]float64, most int, errs func(name string) float64) {
	t.Helper()
	at := map[string][]float64{"dq": oc.Q.Data, "dk": oc.K.Data, "dv": oc.V.Data}
	for _, name := range b.params {
		at["d"+name] = b.numbers[name]
	}
	for name, x := range at {
		step := max(1, len(x)/most)
		limit := 1e-6 * (1 + check.MaxAbs(grads[name]))
		if errs != nil {
			b.compareSum(t, oc, do, name, x, grads[name], limit, errs(name))
			limit += errs(name)
		}
		for i := step / 2; i < len(x); i += step {
			by := func(step float64) (want []float64, e float64) {
				want = check.NumericGradientBy(step, func() float64 { return b.loss(oc, do) }, x[i:][:1])
				return want, check.ErrorRatio(grads[name][i:][:1], want, limit)
			}
			want, e := by(3e-5)
			if e > 1 {
				want, e = by(3e-7)
			}
			if e > 1 {
				t.Errorf("%s[%d] is %.6g, by finite differences %.6g, which is %.3g limits away", name, i, grads[name][i], want[0], e)
			}
		}
	}
}

// compareSum compares the sum of gradients with random signs to the derivative of the textbook
// as all elements of x move by those signs.
func (b *textbookOf) compareSum(t *testing.T, oc *oracle.Call, do oracle.Heads, name string, x, grads []float64, limit, errs float64) {
	t.Helper()
	key, got := rng.New(19), 0.0
	signs, before := make([]float64, len(x)), slices.Clone(x)
	for i := range x {
		signs[i] = 2*float64(key.Uint64(uint64(i))&1) - 1
		got += signs[i] * grads[i]
	}
	limit += 5 * math.Sqrt(float64(len(x))) * errs
	var want float64
	for _, step := range []float64{3e-6, 3e-8} {
		var loss [2]float64
		for side, h := range []float64{step, -step} {
			for i := range x {
				x[i] = before[i] + h*signs[i]
			}
			loss[side] = b.loss(oc, do)
		}
		copy(x, before)
		if want = (loss[0] - loss[1]) / (2 * step); math.Abs(got-want) <= limit {
			return
		}
	}
	t.Errorf("%s with random signs sums to %.6g, by finite differences to %.6g: the limit is %.3g", name, got, want, limit)
}

// confirm computes the gradients of an input for subject s with textbook b.
func confirm(t *testing.T, s subject, sh shape, b *textbookOf, oc *oracle.Call, do oracle.Heads) *confirmed {
	t.Helper()
	m, _ := build(t, s, sh.h)
	a := &confirmed{grads: gradients(t, m, b, oc, do), moved: map[string]float64{}}
	nudged(gradientNudge, append(b.inputs(oc), do.Data), func() {
		for name, x := range gradients(t, m, b, oc, do) {
			a.moved[name] = max(a.moved[name], apart(x, a.grads[name])/gradientNudge)
		}
	})
	if s.frozen == "" {
		l := limits(s, m, callIn(oc))
		errs := func(name string) float64 { return l.Gradient(1, a.size(name, s, sh, m, oc, do)) }
		differences(t, b, oc, do, a.grads, chosen, check.Pick(errs, nil))
	}
	return a
}

// agreeWhole is agree for a mechanism that computes whole heads.
func agreeWhole(t *testing.T, s subject, sh shape, seed uint64, list []form) (worst float64) {
	sh = s.fit(sh)
	oc, do := sh.call(seed)
	m, book := build(t, s, sh.h)
	c, doT := callIn(oc), in(do)
	want := book.answers(s, sh, seed, oc)
	a := answer("gradients", s, sh, seed, func() *confirmed { return confirm(t, s, sh, book, oc, do) })
	v := check.MaxAbs(oc.V.Data)
	for _, f := range list {
		if !f.computes(s, oc) {
			continue
		}
		c.Form, c.Chunk = f.form, f.chunk
		l := limits(s, m, c)
		hold := func(name string, err float64) {
			worst = max(worst, err)
			if err > allowance {
				t.Errorf("%v: %s is off by %.3g limits", f, name, err)
			}
		}
		cond := max(1, check.MaxAbs(want.Cond))
		if f.form == attention.Step {
			hold("o", check.ErrorRatio(forward(t, m, c).o.Data, want.O.Data, l.Output(cond, v+check.MaxAbs(want.O.Data))))
			continue
		}
		got := both(t, m, c, doT)
		hold("o", check.ErrorRatio(got.o.Data, want.O.Data, l.Output(cond, v+check.MaxAbs(want.O.Data))))
		if got.keep.UnseenCount != int64(want.QueriesWithoutKeys) {
			t.Errorf("%v: %d queries see no key, want %d", f, got.keep.UnseenCount, want.QueriesWithoutKeys)
		}
		of := map[string][]float{"dq": got.g.DQ.Data, "dk": got.g.DK.Data, "dv": got.g.DV.Data}
		at := 0
		for _, p := range m.Params().All() {
			of["d"+p.Name] = got.tau[at:][:len(p.Data)]
			at += len(p.Data)
		}
		for name, x := range of {
			// In float32 both sides err.
			hold(name, check.ErrorRatio(x, a.grads[name], check.Pick(2.0, 1)*l.Gradient(1, a.size(name, s, sh, m, oc, do))))
		}
	}
	return worst
}

// shortest returns the length of the shortest row of x.
func shortest(x oracle.Heads) float64 {
	least := math.Inf(1)
	eachRow(x, func(_ int, row []float64) {
		var sum float64
		for _, y := range row {
			sum += y * y
		}
		least = min(least, math.Sqrt(sum))
	})
	return least
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
