package attention

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// Softmax is attention with the weights exp(scale·q·k + bias) over their sum, in blocks
// that are not saved: a building block of headwise mechanisms. It may be used
// concurrently.
type Softmax[T tensor.Float] struct{ e *engine[T] }

// NewSoftmax returns a dense softmax kernel. scale multiplies q·k; 0 means 1/√D.
func NewSoftmax[T tensor.Float](scale float64) *Softmax[T] {
	return &Softmax[T]{&engine[T]{spec: taskSpec[T]{Spec: Spec[T]{Exp: true, Scale: scale, Positive: true}}}}
}

// Rows are the queries, keys and values of a Softmax, with any strides.
type Rows[T tensor.Float] struct {
	Q, K, V tensor.Mat[T] // [n,D], [m,D], [m,Dv]; D and Dv are 1 or more
	Causal  bool
	Offset  int    // query i sees keys j ≤ i+Off, where Causal
	Mask    []bool // [m] keys that exist; nil: all. What others hold reaches nothing
	Bias    []T    // [m] finite, added to the scores of each key; nil: none
	// Keys holds the indices in K, V and Bias of the keys that take part, in any order,
	// all unmasked; nil: all unmasked keys. Causal then counts among them.
	Keys []int32
}

// place returns where key number j that takes part lies.
func (x *Rows[T]) place(j int) int {
	if x.Keys == nil {
		return j
	}
	return int(x.Keys[j])
}

// RowsGrad are the gradients of Rows.
type RowsGrad[T tensor.Float] struct {
	DOut       tensor.Mat[T] // given
	DQ, DK, DV tensor.Mat[T] // overwritten; with Keys their rows of DK and DV are added to
	DBias      []T           // added to; nil: not wanted
}

// Forward sets out [n,Dv], and lse [n] to the logarithms of the sums of weights,
// which Backward needs; nil: not wanted. A query that sees no key gives 0 and a
// logarithm of -Inf.
func (s *Softmax[T]) Forward(ar *arena.Arena, out tensor.Mat[T], lse []T, x *Rows[T]) {
	if x.Q.Rows == 0 {
		return
	}
	mark := ar.Mark()
	defer ar.Reset(mark)
	u := s.unit(ar, x)
	defer s.e.release(u)
	u.o = append(u.o, out)
	if u.savesDen = lse != nil; !u.savesDen {
		lse = arena.Take[T](ar, u.n)
	}
	u.den = append(u.den, lse)
	u.direct().directForward()
}

// Backward sets the gradients in g from the out [n,Dv] and lse [n] of Forward.
func (s *Softmax[T]) Backward(ar *arena.Arena, g *RowsGrad[T], out tensor.Mat[T], lse []T, x *Rows[T]) {
	if x.Q.Rows == 0 {
		if x.Keys == nil {
			scratch.ClearRows(g.DK, 0, g.DK.Rows)
			scratch.ClearRows(g.DV, 0, g.DV.Rows)
		}
		return
	}
	mark := ar.Mark()
	defer ar.Reset(mark)
	u := s.unit(ar, x)
	defer s.e.release(u)
	u.o, u.den, u.do = append(u.o, out), append(u.den, lse), append(u.do, g.DOut)
	u.dscale = arena.TakeZeros[float64](ar, 1)
	dq := g.DQ
	u.dk, u.dval = g.DK, g.DV
	if u.d != x.Q.Cols {
		dq = scratch.TakeMat[T](ar, u.n, u.d)
	}
	if x.Keys != nil || u.d != x.Q.Cols {
		u.dk = scratch.TakeMat[T](ar, u.m, u.d)
	}
	if x.Keys != nil {
		u.dval = scratch.TakeMat[T](ar, u.m, u.dv)
	}
	u.dq = append(u.dq, dq)
	u.direct().directBackward()

	d := x.Q.Cols
	if u.d != d {
		for i := range u.n {
			copy(g.DQ.Row(i), dq.Row(i)[:d])
		}
	}
	for j := 0; j < u.m && g.DBias != nil; j++ {
		g.DBias[x.place(j)] += u.dk.Row(j)[d]
	}
	switch {
	case x.Keys != nil:
		for j := range u.m {
			u.t.Add(g.DK.Row(x.place(j)), g.DK.Row(x.place(j)), u.dk.Row(j)[:d])
			u.t.Add(g.DV.Row(x.place(j)), g.DV.Row(x.place(j)), u.dval.Row(j))
		}
	case u.d != d:
		for j := range u.m {
			copy(g.DK.Row(j), u.dk.Row(j)[:d])
		}
	}
}

// task returns a task of x. A bias is an additional channel: it holds the bias in keys,
// and the reciprocal scale in queries.
func (s *Softmax[T]) unit(ar *arena.Arena, x *Rows[T]) *headTask[T] {
	u, _ := s.e.units.Get().(*headTask[T])
	if u == nil {
		u = new(headTask[T])
	}
	d := x.Q.Cols
	*u = headTask[T]{
		q: u.q, o: u.o, den: u.den, sums: u.sums, scale: u.scale, do: u.do, dq: u.dq, // empty, with room
		t: kernel.Active[T](), spec: &s.e.spec, ar: ar, workers: 1,
		k: x.K, v: x.V, n: x.Q.Rows, m: x.K.Rows, d: d, dv: x.V.Cols, da: d,
		causal: x.Causal, offset: x.Offset, mask: x.Mask, chunk: 1,
	}
	u.scale = append(u.scale, s.e.spec.scale(d, 0))
	if x.Keys != nil {
		u.m = len(x.Keys)
		u.k, u.v = scratch.GatherRows(ar, x.K, x.Keys), scratch.GatherRows(ar, x.V, x.Keys)
		u.mask = nil
	}
	q := x.Q
	if x.Bias != nil {
		u.d, u.da = d+1, d+1
		q = scratch.TakeMat[T](ar, u.n, u.d)
		for i := range u.n {
			copy(q.Row(i), x.Q.Row(i))
			q.Row(i)[d] = T(1 / float64(u.scale[0]))
		}
		k := scratch.TakeMat[T](ar, u.m, u.d)
		for j := range u.m {
			copy(k.Row(j), u.k.Row(j))
			k.Row(j)[d] = x.Bias[x.place(j)]
		}
		u.k = k
	}
	u.q = append(u.q, q)
	return u
}
