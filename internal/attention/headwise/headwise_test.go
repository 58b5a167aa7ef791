package headwise

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// plain is softmax of whole heads with a factor τ of each, in obvious loops.
type plain struct {
	tau    *param.Set
	traits attention.Traits
}

var plainTau = []float64{0.5, 1.5, 2, 1}

func newPlain() *plain {
	p := &plain{new(param.Set), attention.Traits{Name: "plain", Positive: true, Causal: true}}
	tau := p.tau.New("tau", false, len(plainTau))
	for h, x := range plainTau {
		tau.Data[h] = float(x)
	}
	return p
}

func (p *plain) Traits() attention.Traits { return p.traits }

func (p *plain) Setting() string { return "plain" }

func (p *plain) Params() *param.Set { return p.tau }

func (p *plain) Constants() *param.Set { return nil }

func (p *plain) Cost(s attention.Shape) Cost {
	return Cost{FLOPs: 2 * float64(s.N*s.M*(s.D+s.Dv)), Bytes: 64}
}

func (p *plain) scale(h *Head) float64 { return 1 / math.Sqrt(float64(h.Q.Cols)) }

func (p *plain) factor(h *Head) float64 {
	return float64(p.tau.All()[0].Data[h.Head]) * p.scale(h)
}

func (p *plain) Check(c *attention.Call) error {
	if c.Q.H > len(plainTau) {
		return fmt.Errorf("q: has %d heads, plain has factors for %d", c.Q.H, len(plainTau))
	}
	return nil
}

// weights returns the weights of query i, and its scores before the factor.
func (p *plain) weights(h *Head, i int) (w, scores []float64) {
	w, scores = make([]float64, h.K.Rows), make([]float64, h.K.Rows)
	top, sum := math.Inf(-1), 0.0
	for j := range h.VisibleKeys(i) {
		if h.IsUnmasked(j) {
			for e, x := range h.Q.Row(i) {
				scores[j] += float64(x) * float64(h.K.Row(j)[e])
			}
			top = max(top, p.factor(h)*scores[j])
		}
	}
	for j := range h.VisibleKeys(i) {
		if h.IsUnmasked(j) {
			w[j] = math.Exp(p.factor(h)*scores[j] - top)
			sum += w[j]
		}
	}
	for j := range w {
		w[j] /= sum
	}
	return w, scores
}

func (p *plain) Forward(h *Head) {
	saved := h.SaveBuffer(h.Q.Rows)
	for i := range h.Q.Rows {
		w, _ := p.weights(h, i)
		o := make([]float64, h.V.Cols)
		for j := range w {
			for e := range o {
				o[e] += w[j] * float64(h.V.Row(j)[e])
			}
		}
		for e := range o {
			h.Out.Row(i)[e] = float(o[e])
		}
		saved[i] = float(i)
	}
	h.Aux = float64(h.Q.Rows)
}

func (p *plain) Backward(h *Head, g *Grads) {
	if len(h.Saved) != h.Q.Rows || h.Saved[h.Q.Rows-1] != float(h.Q.Rows-1) {
		panic("plain: what Forward saved is not there")
	}
	sums := func(x tensor.Mat) [][]float64 {
		s := make([][]float64, x.Rows)
		for i := range s {
			s[i] = make([]float64, x.Cols)
		}
		return s
	}
	dq, dk, dv, dtau := sums(g.DQ), sums(g.DK), sums(g.DV), 0.0
	for i := range h.Q.Rows {
		w, scores := p.weights(h, i)
		dw, along := make([]float64, len(w)), 0.0
		for j := range w {
			for e, x := range g.DOut.Row(i) {
				dw[j] += float64(x) * float64(h.V.Row(j)[e])
				dv[j][e] += w[j] * float64(x)
			}
			along += w[j] * dw[j]
		}
		for j := range w {
			ds := w[j] * (dw[j] - along)
			dtau += ds * scores[j] * p.scale(h)
			for e := range dq[i] {
				dq[i][e] += ds * p.factor(h) * float64(h.K.Row(j)[e])
				dk[j][e] += ds * p.factor(h) * float64(h.Q.Row(i)[e])
			}
		}
	}
	for _, x := range []struct {
		to  tensor.Mat
		sum [][]float64
	}{{g.DQ, dq}, {g.DK, dk}, {g.DV, dv}} {
		for i := range x.sum {
			for e, y := range x.sum[i] {
				x.to.Row(i)[e] = float(y)
			}
		}
	}
	g.Params[0][h.Head] += float(dtau)
}

// plainProblems are the problems that have no pairs and no decay.
func plainProblems() map[string]*oracle.Call {
	all := calltest.Problems()
	for name, c := range all {
		if c.AttnKeep != nil || c.LogG.D > 0 {
			delete(all, name)
		}
	}
	return all
}

func TestHeadwise(t *testing.T) {
	for name, c := range plainProblems() {
		t.Run(name+"/"+check.Precision, func(t *testing.T) { headwiseProblem(t, c) })
	}
}

func headwiseProblem(t *testing.T, oc *oracle.Call) {
	book := &oracle.Mechanism{Exp: true, Tau: plainTau}
	r := rand.New(rand.NewPCG(12, 13))
	do := calltest.Normal(r, oc.Q.B, oc.Q.H, oc.Q.N, oc.V.D)
	want, grads := book.Forward(oc), book.Backward(oc, do)
	m, c := New(newPlain()), calltest.NewCall(oc)
	out, keep := calltest.Forward(t, m, c, attention.Auto)
	g, dtau := calltest.Backward(t, m, c, calltest.Convert(do), out, keep)
	calltest.Judge(t, check.SoftmaxLimits[float](), book, oc, want, out, keep)
	calltest.JudgeGrads(t, check.SoftmaxLimits[float](), oc, do, want, grads, g, dtau)
	if seen := float64(oc.Q.H*oc.Q.B*oc.Q.N - want.QueriesWithoutKeys); keep.Aux != seen {
		t.Errorf("aux is %v, its heads have %v", keep.Aux, seen)
	}
	if oc.Q.N*oc.K.N > headtask.KeyBlock*headtask.KeyBlock/2 && oc.Causal {
		return // the plain loops take long, and again for every block of columns
	}
	for b := range oc.Q.B {
		for h := range oc.Q.H {
			dst := tensor.NewMat(oc.Q.N, oc.K.N)
			for i := range dst.Data {
				dst.Data[i] = float(math.NaN())
			}
			if err := m.Weights(dst, c, b, h, 0, oc.Q.N); err != nil {
				t.Fatal(err)
			}
			if e := check.ErrorRatio(dst.Data, want.W.Head(b, h).Data[:len(dst.Data)], check.SoftmaxLimits[float]().Output(check.MaxAbs(want.Cond), 1)); e > 1 {
				t.Fatalf("weights are off by %.2g limits", e)
			}
		}
	}
	found, err := m.Diagnose(c)
	if err != nil {
		t.Fatal(err)
	}
	var unseen int64
	for _, d := range found {
		unseen += d.UnseenCount
		if d.Rows > 0 && (math.Abs(d.MinDen-1) > 1e-5 || math.Abs(d.MaxCondition-1) > 1e-5 || d.MinEntropy < 0) {
			t.Errorf("diagnosis of averages is %+v", d)
		}
	}
	if unseen != int64(want.QueriesWithoutKeys) {
		t.Errorf("the diagnosis finds %d unseen queries, there are %d", unseen, want.QueriesWithoutKeys)
	}
	if c.Causal {
		c.Form = attention.Step
		stepped := calltest.Poisoned(oc.Q.B, oc.Q.H, oc.Q.N, oc.V.D)
		if err := m.Forward(stepped, c, nil); err != nil {
			t.Fatal(err)
		}
		calltest.Judge(t, check.SoftmaxLimits[float](), book, oc, want, stepped, nil)
	}
}

// spacious returns x with room between rows and heads, which holds NaN.
func spacious(x tensor.Heads) tensor.Heads {
	y := calltest.Poisoned(x.B, x.H+1, x.N+2, x.D+3)
	y.H, y.N, y.D = x.H, x.N, x.D
	for b := range x.B {
		for h := range x.H {
			scratch.CopyMat(y.Head(b, h), x.Head(b, h))
		}
	}
	return y
}

func TestHeadwiseRefuses(t *testing.T) {
	base := func() *attention.Call { return calltest.NewCall(calltest.Problems()["causal"]) }
	decaying := calltest.NewCall(calltest.Problems()["causal, decay"])
	noncausal := newPlain()
	noncausal.traits.Causal, noncausal.traits.NoCausal = false, "it looks at all tokens"
	for _, x := range []struct {
		p      *plain
		c      *attention.Call
		change func(c *attention.Call)
		want   string
	}{
		{newPlain(), base(), func(c *attention.Call) { c.K.D = 4 }, "k: D is 4, q has 5"},
		{newPlain(), base(), func(c *attention.Call) { c.Form = attention.Linear }, "form: plain has no linear form"},
		{newPlain(), base(), func(c *attention.Call) { c.AttnKeep = make([]bool, 81) }, "attn_keep: plain"},
		{newPlain(), base(), func(c *attention.Call) { c.Drop = &attention.Drop{Rate: 0.5} }, "dropout: plain"},
		{newPlain(), base(), func(c *attention.Call) { c.Form, c.Causal = attention.Step, false }, "form: step of plain needs a causal call"},
		{newPlain(), decaying, func(c *attention.Call) {}, "log_g: plain"},
		{noncausal, base(), func(c *attention.Call) {}, "causal: plain has no causal form: it looks at all tokens"},
	} {
		x.change(x.c)
		err := New(x.p).Forward(calltest.Poisoned(2, 4, 9, 3), x.c, nil)
		if err == nil || !strings.HasPrefix(err.Error(), x.want) {
			t.Errorf("error %v, want %s", err, x.want)
		}
	}
	if _, err := New(noncausal).NewState(attention.Shape{B: 1, H: 1, Hkv: 1, D: 1, Dv: 1}); err == nil {
		t.Error("a mechanism without causal form has a state")
	}
	m := New(newPlain())
	if err := m.Backward(&attention.Grads{DQ: base().Q, DK: base().K, DV: base().V}, calltest.Poisoned(2, 4, 9, 3), calltest.Poisoned(2, 4, 9, 3), base(), &attention.Saved{}); err == nil {
		t.Error("Backward without Forward is not refused")
	}
	out, keep := calltest.Forward(t, m, base(), attention.Auto)
	err := m.Backward(&attention.Grads{DQ: base().Q, DK: base().K, DV: base().V, DLogG: calltest.Poisoned(2, 2, 9, 1)}, out, out, base(), keep)
	if err == nil || !strings.HasPrefix(err.Error(), "d_log_g: plain") {
		t.Errorf("error %v about a gradient of log_g", err)
	}
}

// vanishing is plain, but the weights of query 0 underflow, and query 1 sees no key.
type vanishing struct{ *plain }

func (p vanishing) Forward(h *Head) {
	p.plain.Forward(h)
	clear(h.Out.Row(0))
	clear(h.Out.Row(1))
	h.CountIllConditioned(0)
	h.UnseenQueries = 1
}

func TestDiagnosisTellsWeakFromUnseenRows(t *testing.T) {
	m, c := New(vanishing{newPlain()}), calltest.NewCall(calltest.Problems()["causal"])
	found, err := m.Diagnose(c)
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range found {
		if d.UnseenCount != 1 || d.WeakCount != 1 || d.Rows != int64(c.Q.N-1) || d.MinEntropy != 0 || !math.IsInf(d.MaxCondition, 1) {
			t.Errorf("head %d: %+v", i, d)
		}
	}
}

// A state that is cut, merged, cloned, saved and restored gives the bits of one
// that is not.
func TestHeadState(t *testing.T) {
	oc := calltest.Problems()["causal mask"]
	m, c := New(newPlain()), calltest.NewCall(oc)
	piece := func(i0, i1 int) *attention.Call {
		p := &attention.Call{Q: c.Q.Tokens(i0, i1), K: c.K.Tokens(i0, i1), V: c.V.Tokens(i0, i1)}
		for b := range oc.Q.B {
			p.KeyMask = append(p.KeyMask, c.KeyMask[b*oc.K.N:][i0:i1]...)
		}
		return p
	}
	start := func() attention.State {
		st, err := m.NewState(c.Shape())
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	n := oc.Q.N
	want := calltest.Poisoned(oc.Q.B, oc.Q.H, n, oc.V.D)
	must(start().Step(want, piece(0, n)))

	a, b := start(), start()
	must(a.Absorb(piece(0, 2)))
	must(b.Absorb(piece(2, 4)))
	must(a.Merge(b))
	data, err := a.AppendBinary(nil)
	must(err)
	a.Reset()
	a, err = m.RestoreState(data)
	must(err)
	got := calltest.Poisoned(oc.Q.B, oc.Q.H, n-4, oc.V.D)
	clone := a.Clone()
	must(clone.Step(got.Tokens(0, 1), piece(4, 5)))
	must(clone.Step(got.Tokens(1, n-4), piece(5, n)))
	for i := range oc.Q.B * oc.Q.H {
		for r := range n - 4 {
			if x, y := got.Head(i/oc.Q.H, i%oc.Q.H).Row(r), want.Head(i/oc.Q.H, i%oc.Q.H).Row(4+r); !slices.Equal(x, y) {
				t.Fatalf("token %d of head %d is %v, want %v", r, i, x, y)
			}
		}
	}
	if clone.Tokens() != int64(n) || a.Tokens() != 4 || clone.Bytes() <= 0 {
		t.Errorf("%d and %d tokens", clone.Tokens(), a.Tokens())
	}
	m.Params().All()[0].Data[0]++
	if _, err := m.RestoreState(data); err == nil || !strings.Contains(err.Error(), "parameters") {
		t.Errorf("a snapshot of other parameters: %v", err)
	}
}

// The softmax that headwise mechanisms are made of is the textbook's, with a
// bias and with chosen keys too.
func TestSoftmaxOfRows(t *testing.T) {
	t.Run(check.Precision, softmaxOfRows)
}

func softmaxOfRows(t *testing.T) {
	r := rand.New(rand.NewPCG(16, 17))
	for name, oc := range plainProblems() {
		if oc.Q.B > 1 || oc.CuQ != nil || oc.Theta != 0 || oc.K.N > 64 {
			continue
		}
		do := calltest.Normal(r, 1, oc.Q.H, oc.Q.N, oc.V.D)
		for _, chosen := range []bool{false, true} {
			for _, biased := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%t/%t", name, chosen, biased), func(t *testing.T) {
					rowsProblem(t, r, oc, do, chosen, biased)
				})
			}
		}
	}
}

func rowsProblem(t *testing.T, r *rand.Rand, oc *oracle.Call, do oracle.Heads, chosen, biased bool) {
	d, m := oc.K.D, oc.K.N
	scale := 1 / math.Sqrt(float64(d))
	// A bias is a channel more, and so is what it is multiplied by.
	one := &oracle.Call{Causal: oc.Causal, KeyMask: oc.KeyMask,
		Q: oracle.NewHeads(1, 1, oc.Q.N, d+1), K: oracle.NewHeads(1, 1, m, d+1), V: oracle.NewHeads(1, 1, m, oc.V.D)}
	x := &Rows{
		Q: calltest.Convert(oc.Q).Head(0, 0), K: calltest.Convert(oc.K).Head(0, 0), V: calltest.Convert(oc.V).Head(0, 0),
		Causal: oc.Causal, Offset: m - oc.Q.N, Mask: oc.KeyMask,
	}
	for i := range oc.Q.N {
		copy(one.Q.Head(0, 0).Row(i), oc.Q.Head(0, 0).Row(i))
		one.Q.Head(0, 0).Row(i)[d] = 1 / scale
	}
	if biased {
		x.Bias = make([]float, m)
	}
	order := r.Perm(m)
	if oc.KeyMask != nil || oc.Causal {
		slices.Sort(order)
	}
	for j, at := range order {
		copy(one.K.Head(0, 0).Row(j), oc.K.Head(0, 0).Row(at))
		copy(one.V.Head(0, 0).Row(j), oc.V.Head(0, 0).Row(at))
		if biased {
			x.Bias[at] = float(r.NormFloat64())
			one.K.Head(0, 0).Row(j)[d] = float64(x.Bias[at])
		}
	}
	place := func(j int) int { return j }
	if chosen {
		if oc.KeyMask != nil {
			return
		}
		for _, at := range order {
			x.Keys = append(x.Keys, int32(at))
		}
		place = func(j int) int { return order[j] }
	} else if !slices.IsSorted(order) {
		slices.Sort(order)
		for j := range order {
			copy(one.K.Head(0, 0).Row(j), oc.K.Head(0, 0).Row(j))
			copy(one.V.Head(0, 0).Row(j), oc.V.Head(0, 0).Row(j))
			if biased {
				one.K.Head(0, 0).Row(j)[d] = float64(x.Bias[j])
			}
		}
	}
	if m == 0 && chosen {
		x.Keys = []int32{}
	}
	book := &oracle.Mechanism{Exp: true, Scale: scale}
	if one.Q.N == 0 || m == 0 {
		book.Scale = 1
	}
	first := oracle.NewHeads(1, 1, one.Q.N, oc.V.D)
	copy(first.Data, do.Data)
	want, grads := book.Forward(one), book.Backward(one, first)
	ar := arena.Acquire()
	defer ar.Release()
	s := NewSoftmax(0)
	out, lse := tensor.NewMat(one.Q.N, oc.V.D), make([]float, one.Q.N)
	s.Forward(ar, out, lse, *x)
	l := check.SoftmaxLimits[float]()
	cond := max(1, check.MaxAbs(want.Cond))
	if e := check.ErrorRatio(out.Data, want.O.Data, l.Output(cond, check.MaxAbs(oc.V.Data))); e > 1 {
		t.Errorf("outputs are off by %.3g limits", e)
	}
	g := &RowsGrad{DOut: calltest.Convert(first).Head(0, 0),
		DQ: tensor.NewMat(one.Q.N, d), DK: tensor.NewMat(m, d), DV: tensor.NewMat(m, oc.V.D)}
	if biased {
		g.DBias = make([]float, m)
	}
	s.Backward(ar, *g, out, lse, *x)
	size := max(check.MaxAbs(grads.DQ.Data), check.MaxAbs(grads.DK.Data), check.MaxAbs(grads.DV.Data), check.MaxAbs(first.Data)*check.MaxAbs(oc.V.Data))
	limit := l.Gradient(cond, size)
	for i := range one.Q.N {
		if e := check.ErrorRatio(g.DQ.Row(i), grads.DQ.Head(0, 0).Row(i)[:d], limit); e > 1 {
			t.Fatalf("dq is off by %.3g limits", e)
		}
	}
	for j := range m {
		if e := check.ErrorRatio(g.DK.Row(place(j)), grads.DK.Head(0, 0).Row(j)[:d], limit); e > 1 {
			t.Fatalf("dk is off by %.3g limits", e)
		}
		if e := check.ErrorRatio(g.DV.Row(place(j)), grads.DV.Head(0, 0).Row(j), limit); e > 1 {
			t.Fatalf("dv is off by %.3g limits", e)
		}
		if biased {
			if e := check.ErrorRatio(g.DBias[place(j):][:1], grads.DK.Head(0, 0).Row(j)[d:], limit); e > 1 {
				t.Fatalf("dbias is off by %.3g limits", e)
			}
		}
	}
}

// Strided views, several threads, several units of parameters at a time and
// memory that was used before change no bit.
func TestHeadwiseBits(t *testing.T) {
	defer par.SetThreads(0)
	for name, oc := range plainProblems() {
		if oc.K.N > 64 || oc.K.N == 0 || oc.Q.N == 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			do := calltest.Convert(calltest.Normal(rand.New(rand.NewPCG(14, 15)), oc.Q.B, oc.Q.H, oc.Q.N, oc.V.D))
			m, c := New(newPlain()), calltest.NewCall(oc)
			out, keep := calltest.Forward(t, m, c, attention.Auto)
			g, dtau := calltest.Backward(t, m, c, do, out, keep)

			saved := make([][]float, len(keep.Heads))
			for i, x := range keep.Heads {
				saved[i] = slices.Clone(x)
				for j := range x {
					x[j] = float(math.NaN())
				}
			}
			wide := *c
			wide.Q, wide.K, wide.V = spacious(c.Q), spacious(c.K), spacious(c.V)
			par.SetThreads(3)
			out2 := spacious(calltest.Poisoned(out.B, out.H, out.N, out.D))
			if err := m.Forward(out2, &wide, keep); err != nil {
				t.Fatal(err)
			}
			if !slices.EqualFunc(keep.Heads, saved, slices.Equal[[]float]) {
				t.Errorf("saved for Backward is %v, was %v", keep.Heads, saved)
			}
			g2 := &attention.Grads{DQ: spacious(calltest.Poisoned(c.Q.B, c.Q.H, c.Q.N, c.Q.D)),
				DK: spacious(calltest.Poisoned(c.K.B, c.K.H, c.K.N, c.K.D)), DV: spacious(calltest.Poisoned(c.V.B, c.V.H, c.V.N, c.V.D))}
			m.Params().ZeroGrad()
			if err := m.Backward(g2, spacious(do), out2, &wide, keep); err != nil {
				t.Fatal(err)
			}
			for _, x := range []struct {
				name      string
				got, want tensor.Heads
			}{{"o", out2, out}, {"dq", g2.DQ, g.DQ}, {"dk", g2.DK, g.DK}, {"dv", g2.DV, g.DV}} {
				for i := range x.want.B * x.want.H {
					for n := range x.want.N {
						if !slices.Equal(x.got.Head(i/x.want.H, i%x.want.H).Row(n), x.want.Head(i/x.want.H, i%x.want.H).Row(n)) {
							t.Fatalf("%s of a strided view differs", x.name)
						}
					}
				}
			}
			if got := m.Params().All()[0].Grad; !slices.Equal(got, dtau) {
				t.Errorf("dtau is %v, was %v", got, dtau)
			}
		})
	}
}
