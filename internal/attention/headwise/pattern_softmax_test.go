package headwise

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/tensor"
)

// slope is a bias of tests: a number for each distance.
type slope struct{ of, grad []float }

func (s *slope) Add(t *PatternTile) {
	for r := range t.Rows {
		from, end := t.Visible(r)
		for c := from; c < end; c++ {
			t.S[r*t.LD+c] += s.of[t.Query(r)+len(s.of)/2-t.Key(c)] / t.Scale
		}
	}
}

func (s *slope) Grad(t *PatternTile, _ *Grads) {
	for r := range t.Rows {
		from, end := t.Visible(r)
		for c := from; c < end; c++ {
			s.grad[t.Query(r)+len(s.of)/2-t.Key(c)] += t.S[r*t.LD+c]
		}
	}
}

// scattered adds parts of every kind, some of whose pairs overlap.
func scattered(p *Pattern, n, m int) {
	lo, hi := p.AddPart(Range(0, n), Range(0, m))
	for a := range lo {
		lo[a], hi[a] = int32(a-5), int32(a+3)
	}
	lo, hi = p.AddPart(EveryNth(3, 1, n), EveryNth(4, 2, m))
	for a := range lo {
		lo[a], hi[a] = 0, int32(a)
	}
	whole := m / 7
	lo, hi = p.AddPart(Range(n/2, n-n/2), RowSet{First: 3, N: 2 * whole, Run: 2, Step: 7})
	for a := range lo {
		lo[a], hi[a] = int32(a%5), int32(2*whole-a%7)
	}
	var list []int32
	for i := 0; i < n; i += 1 + i/2 {
		list = append(list, int32(i))
	}
	lo, hi = p.AddPart(RowSet{N: len(list), List: list}, Range(0, m))
	for a := range lo {
		lo[a], hi[a] = 1, int32(m)
	}
}

func TestPairSoftmax(t *testing.T) {
	for _, x := range []struct {
		n, m, d, dv  int
		mask, biased bool
		scale        float64
	}{
		{1, 1, 1, 1, false, false, 0}, {9, 7, 3, 4, false, true, 0}, {40, 60, 16, 16, true, false, 0},
		{200, 300, 8, 5, true, true, 0.7}, {330, 290, 32, 32, false, true, 30},
	} {
		name := fmt.Sprint(x.n, "×", x.m, " of ", x.d)
		t.Run(name+"/"+check.Precision, func(t *testing.T) { pairsProblem(t, x.n, x.m, x.d, x.dv, x.mask, x.biased, x.scale) })
	}
}

func pairsProblem(t *testing.T, n, m, d, dv int, masked, biased bool, scale float64) {
	r := rand.New(rand.NewPCG(uint64(n), uint64(m)))
	random := func(rows, cols int) tensor.Mat {
		x := tensor.NewMat(rows, cols)
		for i := range x.Data {
			x.Data[i] = float(float32(r.NormFloat64()))
		}
		return x
	}
	ar := arena.Acquire()
	defer ar.Release()
	h := &Head{Q: random(n, d), K: random(m, d), V: random(m, dv), Out: tensor.NewMat(n, dv), Scratch: ar, Table: kernel.Active[float]()}
	if masked {
		h.Mask = make([]bool, m)
		for j := range h.Mask {
			if h.Mask[j] = r.IntN(4) > 0; !h.Mask[j] {
				clear(h.K.Row(j))
				clear(h.V.Row(j))
			}
		}
	}
	s := &PatternSoftmax{Scale: scale}
	bias := &slope{make([]float, 2*(n+m)), make([]float, 2*(n+m))}
	if biased {
		s.Bias = bias
		copy(bias.of, random(1, len(bias.of)).Data)
	}
	pairs := NewPattern()
	defer pairs.Release()
	scattered(pairs, n, m)
	do := random(n, dv)
	lse := make([]float, n)
	for i := range h.Out.Data {
		h.Out.Data[i] = float(math.NaN())
	}
	s.Forward(h, lse, pairs)
	g := &Grads{DQ: tensor.NewMat(n, d), DK: tensor.NewMat(m, d), DV: tensor.NewMat(m, dv)}
	s.Backward(h, g, h.Out, do, lse, pairs)

	// The same in obvious loops.
	times := make([][]float64, n)
	for i := range times {
		times[i] = make([]float64, m)
	}
	count := 0
	for k := range pairs.patches {
		x := &pairs.patches[k]
		lo, hi := pairs.boundsOf(x)
		for a := range lo {
			for c := max(lo[a], 0); c < min(hi[a], int32(x.keys.N)); c++ {
				count++
				if j := x.keys.RowAt(int(c)); h.IsUnmasked(j) {
					times[x.queries.RowAt(a)][j]++
				}
			}
		}
	}
	if pairs.CountPairs() != count {
		t.Errorf("%d pairs, counted %d", count, pairs.CountPairs())
	}
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(d))
	}
	wide := func(x tensor.Mat) oracle.Mat { return oracle.NewMat(x.Rows, x.Cols) }
	out, dq, dk, dv64, dbias := wide(h.Out), wide(h.Q), wide(h.K), wide(h.V), make([]float64, len(bias.of))
	unseen, cond := 0, 1.0
	for i := range n {
		w, sum, top := make([]float64, m), 0.0, math.Inf(-1)
		for j := range m {
			if times[i][j] == 0 {
				continue
			}
			var size float64
			for e := range d {
				w[j] += float64(h.Q.Row(i)[e]) * float64(h.K.Row(j)[e])
				size += math.Abs(float64(h.Q.Row(i)[e]) * float64(h.K.Row(j)[e]))
			}
			w[j] = w[j]*scale + float64(bias.of[i+len(bias.of)/2-j])
			top, cond = max(top, w[j]), max(cond, 1+size*scale+math.Abs(float64(bias.of[i+len(bias.of)/2-j])))
		}
		for j := range m {
			w[j] = times[i][j] * math.Exp(w[j]-top)
			if times[i][j] == 0 {
				w[j] = 0
			}
			sum += w[j]
		}
		if sum == 0 {
			unseen++
			continue
		}
		along, dw := 0.0, make([]float64, m)
		for j := range m {
			w[j] /= sum
			for e := range dv {
				out.Row(i)[e] += w[j] * float64(h.V.Row(j)[e])
				dw[j] += float64(do.Row(i)[e]) * float64(h.V.Row(j)[e])
				dv64.Row(j)[e] += w[j] * float64(do.Row(i)[e])
			}
			along += w[j] * dw[j]
		}
		for j := range m {
			ds := w[j] * (dw[j] - along)
			dbias[i+len(bias.of)/2-j] += ds
			for e := range d {
				dq.Row(i)[e] += ds * scale * float64(h.K.Row(j)[e])
				dk.Row(j)[e] += ds * scale * float64(h.Q.Row(i)[e])
			}
		}
	}
	if h.UnseenQueries != unseen {
		t.Errorf("%d queries see nothing, want %d", h.UnseenQueries, unseen)
	}
	l := check.SoftmaxLimits[float]()
	if e := check.ErrorRatio(h.Out.Data, out.Data, l.Output(cond, check.MaxAbs(h.V.Data))); e > 1 {
		t.Errorf("outputs are off by %.3g limits", e)
	}
	size := max(check.MaxAbs(dq.Data), check.MaxAbs(dk.Data), check.MaxAbs(dv64.Data), check.MaxAbs(do.Data)*check.MaxAbs(h.V.Data))
	if !biased {
		dbias, bias.grad = nil, nil
	}
	for _, x := range []struct {
		name string
		got  []float
		want []float64
	}{{"dq", g.DQ.Data, dq.Data}, {"dk", g.DK.Data, dk.Data}, {"dv", g.DV.Data, dv64.Data}, {"dbias", bias.grad, dbias}} {
		if e := check.ErrorRatio(x.got, x.want, l.Gradient(cond, size)); e > 1 {
			t.Errorf("%s is off by %.3g limits", x.name, e)
		}
	}
}

// What a row sees alone decides its bits: not the other queries, nor keys and
// values that it does not see, be they NaN.
func TestPairSoftmaxBits(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	const n, d, w = 400, 20, 150
	q, k, v := tensor.NewMat(n, d), tensor.NewMat(n, d), tensor.NewMat(n, d)
	for i := range q.Data {
		q.Data[i], k.Data[i], v.Data[i] = float(r.NormFloat64()), float(r.NormFloat64()), float(r.NormFloat64())
	}
	attend := func(i0, i1 int) tensor.Mat {
		ar := arena.Acquire()
		defer ar.Release()
		h := &Head{Q: q.Slice(i0, i1), K: k, V: v, Out: tensor.NewMat(i1-i0, d), Scratch: ar, Table: kernel.Active[float]()}
		p := NewPattern()
		defer p.Release()
		lo, hi := p.AddPart(Range(0, i1-i0), Range(0, n))
		for a := range lo {
			lo[a], hi[a] = int32(i0+a-w), int32(i0+a+1)
		}
		new(PatternSoftmax).Forward(h, make([]float, i1-i0), p)
		return h.Out
	}
	all := attend(0, n)
	for j := 300; j < n; j++ {
		k.Row(j)[3], v.Row(j)[1] = float(math.NaN()), float(math.Inf(1))
	}
	for i0 := 0; i0 < 300; i0 += 37 {
		some := attend(i0, n)
		for i := i0; i < 300; i++ {
			for e, x := range some.Row(i - i0) {
				if x != all.Row(i)[e] {
					t.Fatalf("query %d alone from %d on differs in channel %d: %v, %v", i, i0, e, x, all.Row(i)[e])
				}
			}
		}
	}
}
