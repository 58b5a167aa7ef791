package headwise

import (
	"sync"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// Softmax computes attention with the weights exp(scale·q·k + bias), divided by their sum. It
// is a building block of headwise mechanisms. It computes the weights in blocks and does not
// keep them. It may be used concurrently.
type Softmax interface {
	// Forward sets out [n,Dv]. It also sets lse [n], which Backward needs, to the logarithms of
	// the sums of weights, unless lse is nil. For a query that sees no key, out is 0 and lse is
	// -Inf.
	Forward(ar *arena.Arena, out tensor.Mat, lse []tensor.Float, x Rows)
	// Backward sets the gradients in g from the out [n,Dv] and lse [n] of Forward.
	Backward(ar *arena.Arena, g RowsGrad, out tensor.Mat, lse []tensor.Float, x Rows)
}

// blockSoftmax is a Softmax that computes blocks as the direct form does.
type blockSoftmax struct {
	spec  headtask.Spec
	units sync.Pool // of *headtask.Task
}

// NewSoftmax returns a dense softmax kernel. scale multiplies q·k; 0 means 1/√D.
func NewSoftmax(scale float64) Softmax {
	return &blockSoftmax{spec: headtask.Spec{Spec: attention.Spec{Exp: true, Scale: scale, Positive: true}}}
}

// release keeps u for another call, without what it points at.
func (s *blockSoftmax) release(u *headtask.Task) {
	u.Clear()
	s.units.Put(u)
}

// Rows holds the queries, keys and values of a Softmax. They may have any strides.
type Rows struct {
	Q, K, V tensor.Mat // [n,D], [m,D], [m,Dv]; D and Dv are at least 1
	Causal  bool
	Offset  int            // if Causal, query i sees keys j ≤ i+Offset
	Mask    []bool         // [m] unmasked keys; nil: all. Rows of masked keys are ignored
	Bias    []tensor.Float // [m] finite numbers, added to the scores of each key; nil: none
	// Keys selects keys by their index in K, V and Bias, in any order; nil: all unmasked keys.
	// The selected keys must be unmasked. A causal mask then counts selected keys.
	Keys []int32
}

// place returns where key number j that takes part lies.
func (x *Rows) place(j int) int {
	if x.Keys == nil {
		return j
	}
	return int(x.Keys[j])
}

// RowsGrad holds the gradients of Rows.
type RowsGrad struct {
	DOut       tensor.Mat     // input: gradient of out
	DQ, DK, DV tensor.Mat     // overwritten; with Rows.Keys, the selected rows of DK and DV are added to
	DBias      []tensor.Float // added to; nil: not wanted
}

func (s *blockSoftmax) Forward(ar *arena.Arena, out tensor.Mat, lse []tensor.Float, x Rows) {
	if x.Q.Rows == 0 {
		return
	}
	mark := ar.Mark()
	defer ar.Reset(mark)
	u := s.unit(ar, &x)
	defer s.release(u)
	u.O = append(u.O, out)
	if u.SavesDen = lse != nil; !u.SavesDen {
		lse = arena.Take[tensor.Float](ar, u.N)
	}
	u.Den = append(u.Den, lse)
	u.DirectForward()
}

func (s *blockSoftmax) Backward(ar *arena.Arena, g RowsGrad, out tensor.Mat, lse []tensor.Float, x Rows) {
	if x.Q.Rows == 0 {
		if x.Keys == nil {
			scratch.ClearRows(g.DK, 0, g.DK.Rows)
			scratch.ClearRows(g.DV, 0, g.DV.Rows)
		}
		return
	}
	mark := ar.Mark()
	defer ar.Reset(mark)
	u := s.unit(ar, &x)
	defer s.release(u)
	u.O, u.Den, u.DO = append(u.O, out), append(u.Den, lse), append(u.DO, g.DOut)
	u.DScale = arena.TakeZeros[float64](ar, 1)
	dq := g.DQ
	u.DK, u.DVal = g.DK, g.DV
	if u.D != x.Q.Cols {
		dq = scratch.TakeMat(ar, u.N, u.D)
	}
	if x.Keys != nil || u.D != x.Q.Cols {
		u.DK = scratch.TakeMat(ar, u.M, u.D)
	}
	if x.Keys != nil {
		u.DVal = scratch.TakeMat(ar, u.M, u.Dv)
	}
	u.DQ = append(u.DQ, dq)
	u.DirectBackward()

	d := x.Q.Cols
	if u.D != d {
		for i := range u.N {
			copy(g.DQ.Row(i), dq.Row(i)[:d])
		}
	}
	for j := 0; j < u.M && g.DBias != nil; j++ {
		g.DBias[x.place(j)] += u.DK.Row(j)[d]
	}
	switch {
	case x.Keys != nil:
		for j := range u.M {
			u.Table.Add(g.DK.Row(x.place(j)), g.DK.Row(x.place(j)), u.DK.Row(j)[:d])
			u.Table.Add(g.DV.Row(x.place(j)), g.DV.Row(x.place(j)), u.DVal.Row(j))
		}
	case u.D != d:
		for j := range u.M {
			copy(g.DK.Row(j), u.DK.Row(j)[:d])
		}
	}
}

// unit returns a task of x. A bias is an additional channel: it holds the bias in keys,
// and the reciprocal scale in queries.
func (s *blockSoftmax) unit(ar *arena.Arena, x *Rows) *headtask.Task {
	u, _ := s.units.Get().(*headtask.Task)
	if u == nil {
		u = new(headtask.Task)
	}
	d := x.Q.Cols
	u.Arena, u.Workers = ar, 1
	u.Geometry = headtask.Geometry{
		Q: u.Q, Scale: u.Scale, // empty, with room
		Table: kernel.Active[tensor.Float](), Spec: &s.spec,
		K: x.K, V: x.V, N: x.Q.Rows, M: x.K.Rows, D: d, Dv: x.V.Cols, PreparedWidth: d,
		Causal: x.Causal, Offset: x.Offset, Mask: x.Mask, Chunk: 1,
	}
	u.Scale = append(u.Scale, s.spec.RowScale(d, 0))
	if x.Keys != nil {
		u.M = len(x.Keys)
		u.K, u.V = scratch.GatherRows(ar, x.K, x.Keys), scratch.GatherRows(ar, x.V, x.Keys)
		u.Mask = nil
	}
	q := x.Q
	if x.Bias != nil {
		u.D, u.PreparedWidth = d+1, d+1
		q = scratch.TakeMat(ar, u.N, u.D)
		for i := range u.N {
			copy(q.Row(i), x.Q.Row(i))
			q.Row(i)[d] = tensor.Float(1 / float64(u.Scale[0]))
		}
		k := scratch.TakeMat(ar, u.M, u.D)
		for j := range u.M {
			copy(k.Row(j), u.K.Row(j))
			k.Row(j)[d] = x.Bias[x.place(j)]
		}
		u.K = k
	}
	u.Q = append(u.Q, q)
	return u
}
