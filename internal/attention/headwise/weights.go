package headwise

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/rowstats"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// unitColumns is the number of keys whose columns of the attention matrix are
// computed at a time, as the outputs of unit vectors.
const unitColumns = 64

// eachColumnBlock calls f with each block of columns of the attention matrix of one head. Block
// a [n-left, columns] is in scratch memory and starts with the column of key j0; the first left
// queries see no key and have no row. It returns the number of queries without a key, the
// number of ill-conditioned queries, and Head.ExactShare. first, if not nil, gets the head before its
// first block.
func (w *driver) eachColumnBlock(c *attention.Call, s *attention.Sequence, head int, first func(h *Head, left int), f func(a tensor.Mat, left, j0 int)) (unseen, illConditioned int, exact float64) {
	ar := arena.Acquire()
	defer ar.Release()
	h := w.takeHead()
	defer w.putHead(h)
	left := w.openHead(h, c, s, head, ar, false)
	if left == s.N {
		return left, 0, 0
	}
	if first != nil {
		mark := ar.Mark()
		first(h, left)
		ar.Reset(mark)
	}
	one := *h
	for j0 := 0; j0 < s.M; j0 += unitColumns {
		mark := ar.Mark()
		n := min(unitColumns, s.M-j0)
		*h = one
		h.V = tensor.Mat{Data: arena.TakeZeros[float](ar, s.M*n), Rows: s.M, Cols: n, Stride: n}
		for j := range n {
			if h.IsUnmasked(j0 + j) {
				h.V.Row(j0 + j)[j] = 1
			}
		}
		h.Out = scratch.TakeMat(ar, s.N-left, n)
		w.Function.Forward(h)
		f(h.Out, left, j0)
		ar.Reset(mark)
	}
	return left + h.UnseenQueries, h.illConditioned.count, h.ExactShare // of the last block, as of any
}

// NoMatrix is a Function without an attention matrix, because its outputs are not sums over
// keys. NoMatrixReason returns the reason for error messages.
type NoMatrix interface{ NoMatrixReason() string }

// Celled is a Function whose far keys are in cells with centres that calls share.
type Celled interface {
	// DescribeCells returns the root mean square distance of the keys of h that are in a cell from
	// its centre, 0 if there are none. For each query of h it sets the element of wild, which is 0,
	// to the share of Σ|w| on weights that attention.Diagnosis calls wild.
	DescribeCells(h *Head, wild []float64) (distance float64)
}

// refusePairs returns an error if the mechanism has no attention matrix.
func (w *driver) refusePairs(what string) error {
	if x, is := w.Function.(NoMatrix); is {
		return fmt.Errorf("%s: %s has %w: %s", what, w.name(), attention.ErrNoMatrix, x.NoMatrixReason())
	}
	return nil
}

func (w *driver) Weights(dst tensor.Mat, c *attention.Call, b, h, i0, i1 int) error {
	if err := w.checkCall(c); err != nil {
		return err
	}
	if err := w.refusePairs("weights"); err != nil {
		return err
	}
	if err := c.CheckRows(dst, b, h, i0, i1); err != nil {
		return err
	}
	scratch.ClearRows(dst, 0, dst.Rows)
	seqs := c.Sequences()
	for i := range seqs {
		s := &seqs[i]
		if s.Batch != b || max(i0, s.Q0) >= min(i1, s.Q0+s.N) {
			continue
		}
		w.eachColumnBlock(c, s, h, nil, func(a tensor.Mat, left, j0 int) {
			for r := range a.Rows {
				if at := s.Q0 + left + r; i0 <= at && at < i1 {
					copy(dst.Row(at - i0)[s.K0+j0:], a.Row(r))
				}
			}
		})
	}
	return nil
}

// Diagnose describes the rows of the attention matrix of each head. The weights are the
// elements of the matrix, after any division, and the denominator of a row is its sum, which is
// 1 for an average.
func (w *driver) Diagnose(c *attention.Call) ([]attention.Diagnosis, error) {
	if err := w.checkCall(c); err != nil {
		return nil, err
	}
	if err := w.refusePairs("diagnosis"); err != nil {
		return nil, err
	}
	p := w.schedule(c, tensor.Heads{}, nil)
	defer p.release()
	found := make([]attention.Diagnosis, p.units)
	par.RunEach(p.units, p.work*float64(1+c.K.N/unitColumns), func(i int) {
		s, head := p.sequenceOf(i)
		rows := make([]rowstats.Row, s.N)
		var wild []float64
		var distance float64
		var describe func(h *Head, left int)
		if x, is := w.Function.(Celled); is {
			wild = make([]float64, s.N)
			describe = func(h *Head, left int) { distance = x.DescribeCells(h, wild[left:]) }
		}
		unseen, illConditioned, exact := w.eachColumnBlock(c, s, head, describe, func(a tensor.Mat, left, j0 int) {
			for r := range a.Rows {
				for _, x := range a.Row(r) {
					rows[left+r].AddWeight(float64(x), 1)
				}
			}
		})
		found[i].UnseenCount, found[i].WeakCount = int64(unseen), int64(illConditioned)
		for r := range rows {
			x := &rows[r]
			if x.Size == 0 && unseen > 0 {
				unseen--
				continue
			}
			one := attention.Diagnosis{Rows: 1, Entropy: x.Entropy(), Condition: x.Size, MinDen: x.Sum}
			if x.Size == 0 {
				one.Condition = math.Inf(1)
			}
			if wild != nil {
				one.WildShare = wild[r]
			}
			one.MinEntropy, one.MaxCondition, one.MaxWildShare = one.Entropy, one.Condition, one.WildShare
			found[i].Merge(&one, r, false)
		}
		found[i].ExactShare, found[i].KeyDistance = exact, distance
	})
	list := make([]attention.Diagnosis, c.Q.B*c.Q.H)
	for i := range found {
		s, head := p.sequenceOf(i)
		list[s.Batch*c.Q.H+head].Merge(&found[i], s.Q0, false)
	}
	for i := range list {
		if n := float64(list[i].Rows); n > 0 {
			list[i].Entropy /= n
			list[i].Condition /= n
			list[i].WildShare /= n
		}
	}
	return list, nil
}
