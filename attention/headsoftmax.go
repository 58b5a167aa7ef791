package attention

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// Softmax is attention with the weights exp(scale·q·k + bias) over their sum, in
// blocks that are not kept: a part that headwise mechanisms are made of. It may
// be used concurrently.
type Softmax[T tensor.Float] struct{ e *engine[T] }

// NewSoftmax returns the one of that scale; 0: 1/√D.
func NewSoftmax[T tensor.Float](scale float64) *Softmax[T] {
	return &Softmax[T]{&engine[T]{spec: Spec[T]{Exp: true, Scale: scale, Positive: true}}}
}

// Rows are the queries, keys and values of a Softmax, with any strides.
type Rows[T tensor.Float] struct {
	Q, K, V tensor.Mat[T] // [n,D], [m,D], [m,Dv]; D and Dv are 1 or more
	Causal  bool
	Off     int    // query i sees keys j ≤ i+Off, where Causal
	Mask    []bool // [m] keys that exist; nil: all. What others hold reaches nothing
	Bias    []T    // [m] finite, added to the scores of each key; nil: none
	// Keys are the places in K, V and Bias of those keys that take part, in any
	// order, all of which exist; nil: all that Mask leaves. Causal then counts
	// among them.
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
	DQ, DK, DV tensor.Mat[T] // overwritten; with Keys those of DK and DV are added to
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
	if u.kept = lse != nil; !u.kept {
		lse = arena.Take[T](ar, u.n)
	}
	u.den = append(u.den, lse)
	u.directForward()
}

// Backward sets the gradients in g from what Forward gave.
func (s *Softmax[T]) Backward(ar *arena.Arena, g *RowsGrad[T], out tensor.Mat[T], lse []T, x *Rows[T]) {
	if x.Q.Rows == 0 {
		if x.Keys == nil {
			clearRows(g.DK, 0, g.DK.Rows)
			clearRows(g.DV, 0, g.DV.Rows)
		}
		return
	}
	mark := ar.Mark()
	defer ar.Reset(mark)
	u := s.unit(ar, x)
	defer s.e.release(u)
	u.o, u.den, u.do = append(u.o, out), append(u.den, lse), append(u.do, g.DOut)
	u.dscale = arena.Zeros[float64](ar, 1)
	dq := g.DQ
	u.dk, u.dval = g.DK, g.DV
	if u.d != x.Q.Cols {
		dq = scratchMat[T](ar, u.n, u.d)
	}
	if x.Keys != nil || u.d != x.Q.Cols {
		u.dk = scratchMat[T](ar, u.m, u.d)
	}
	if x.Keys != nil {
		u.dval = scratchMat[T](ar, u.m, u.dv)
	}
	u.dq = append(u.dq, dq)
	u.directBackward()

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

// unit returns a unit of x. A bias is a channel more: that of the keys holds it,
// that of the queries what takes the scale from it.
func (s *Softmax[T]) unit(ar *arena.Arena, x *Rows[T]) *unit[T] {
	u, _ := s.e.units.Get().(*unit[T])
	if u == nil {
		u = new(unit[T])
	}
	d := x.Q.Cols
	*u = unit[T]{
		q: u.q, o: u.o, den: u.den, scale: u.scale, do: u.do, dq: u.dq, // empty, with room
		t: kernel.Active[T](), spec: &s.e.spec, ar: ar, workers: 1,
		k: x.K, v: x.V, n: x.Q.Rows, m: x.K.Rows, d: d, dv: x.V.Cols, da: d,
		causal: x.Causal, off: x.Off, mask: x.Mask, chunk: 1,
	}
	u.scale = append(u.scale, s.e.spec.scale(d, 0))
	if x.Keys != nil {
		u.m = len(x.Keys)
		u.k, u.v = gathered(ar, x.K, x.Keys), gathered(ar, x.V, x.Keys)
		u.mask = nil
	}
	q := x.Q
	if x.Bias != nil {
		u.d, u.da = d+1, d+1
		q = scratchMat[T](ar, u.n, u.d)
		for i := range u.n {
			copy(q.Row(i), x.Q.Row(i))
			q.Row(i)[d] = T(1 / float64(u.scale[0]))
		}
		k := scratchMat[T](ar, u.m, u.d)
		for j := range u.m {
			copy(k.Row(j), u.k.Row(j))
			k.Row(j)[d] = x.Bias[x.place(j)]
		}
		u.k = k
	}
	u.q = append(u.q, q)
	return u
}

// gathered returns some rows of x.
func gathered[T tensor.Float](ar *arena.Arena, x tensor.Mat[T], rows []int32) tensor.Mat[T] {
	y := scratchMat[T](ar, len(rows), x.Cols)
	for i, j := range rows {
		copy(y.Row(i), x.Row(int(j)))
	}
	return y
}

// Product sets c to op(a)·op(b), or adds it where acc is set; ta and tb say that
// op transposes.
func (h *Head[T]) Product(c, a, b tensor.Mat[T], ta, tb, acc bool) {
	k := a.Cols
	if ta {
		k = a.Rows
	}
	mark := h.Scratch.Mark()
	scratch := arena.Take[T](h.Scratch, kernel.GemmScratch(c.Rows, c.Cols, k))
	kernel.Gemm(h.Table, ta, tb, c.Rows, c.Cols, k, a.Data, a.Stride, b.Data, b.Stride, acc, c.Data, c.Stride, scratch)
	h.Scratch.Reset(mark)
}

// Take returns a contiguous matrix in scratch memory with undefined contents.
func (h *Head[T]) Take(rows, cols int) tensor.Mat[T] { return scratchMat[T](h.Scratch, rows, cols) }

// Softmax turns each row of x into exp(x) over the row's sum.
func (h *Head[T]) Softmax(x tensor.Mat[T]) {
	t := h.Table
	for i := range x.Rows {
		row := x.Row(i)
		t.Scale(row, T(1/float64(t.Exp(row, row, t.Max(row)))), row)
	}
}

// SoftmaxGrad turns the gradient dp of what Softmax has made of x, which is p,
// into that of x.
func (h *Head[T]) SoftmaxGrad(dp, p tensor.Mat[T]) {
	for i := range p.Rows {
		dx, row := dp.Row(i), p.Row(i)
		along := h.Table.Dot(dx, row)
		for j, x := range row {
			dx[j] = x * (dx[j] - along)
		}
	}
}
