package attention

import (
	"fmt"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// unitColumns is the number of keys whose columns of the attention matrix are
// computed at a time, as the outputs of unit vectors.
const unitColumns = 64

// columns calls f with the attention matrix of one head of a sequence, some
// columns after the other: a [n-left, keys from j0 on] in scratch memory, of the
// queries from left on. The first left queries see no key.
func (w *headwise[T]) columns(c *Call[T], s *Sequence, head int, f func(a tensor.Mat[T], left, j0 int)) {
	ar := arena.Acquire()
	defer ar.Release()
	h := w.head()
	defer w.putHead(h)
	left := w.open(h, c, s, head, ar)
	if left == s.N {
		return
	}
	one := *h
	for j0 := 0; j0 < s.M; j0 += unitColumns {
		mark := ar.Mark()
		n := min(unitColumns, s.M-j0)
		*h = one
		h.V = tensor.Mat[T]{Data: arena.TakeZeros[T](ar, s.M*n), Rows: s.M, Cols: n, Stride: n}
		for j := range n {
			if h.Exists(j0 + j) {
				h.V.Row(j0 + j)[j] = 1
			}
		}
		h.Out = scratch.TakeMat[T](ar, s.N-left, n)
		w.Headwise.Forward(h)
		f(h.Out, left, j0)
		ar.Reset(mark)
	}
}

// Unpaired is a Headwise without an attention matrix: its outputs are no sums over
// keys.
type Unpaired interface{ Unpaired() string }

// refusePairs reports a mechanism without an attention matrix.
func (w *headwise[T]) refusePairs(what string) error {
	if x, is := w.Headwise.(Unpaired); is {
		return fmt.Errorf("%s: %s has %w: %s", what, w.name(), ErrNoMatrix, x.Unpaired())
	}
	return nil
}

func (w *headwise[T]) Weights(dst tensor.Mat[T], c *Call[T], b, h, i0, i1 int) error {
	if err := w.check(c); err != nil {
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
		w.columns(c, s, h, func(a tensor.Mat[T], left, j0 int) {
			for r := range a.Rows {
				if at := s.Q0 + left + r; i0 <= at && at < i1 {
					copy(dst.Row(at - i0)[s.K0+j0:], a.Row(r))
				}
			}
		})
	}
	return nil
}

// Diagnose tells how rows of the attention matrix lie, which are weights after any
// division. The denominator of a row is its sum, 1 where the row is an average.
func (w *headwise[T]) Diagnose(c *Call[T]) ([]Diagnosis, error) {
	if err := w.check(c); err != nil {
		return nil, err
	}
	if err := w.refusePairs("diagnosis"); err != nil {
		return nil, err
	}
	p := w.pass(c, tensor.Heads[T]{}, nil)
	defer p.release()
	found := make([]Diagnosis, p.units)
	par.RunEach(p.units, p.work*float64(1+c.K.N/unitColumns), func(i int) {
		s, head := p.sequence(i)
		rows := make([]RowDiagnosis, s.N)
		w.columns(c, s, head, func(a tensor.Mat[T], left, j0 int) {
			for r := range a.Rows {
				for _, x := range a.Row(r) {
					rows[left+r].AddWeight(float64(x), 1)
				}
			}
		})
		for r := range rows {
			x := &rows[r]
			if x.Seen == 0 || x.Size == 0 {
				found[i].Unseen++
				continue
			}
			one := Diagnosis{Rows: 1, Entropy: x.Entropy(), Condition: x.Size, MinDen: x.Sum}
			one.MinEntropy, one.MaxCondition = one.Entropy, one.Condition
			found[i].Merge(&one, r, false)
		}
	})
	list := make([]Diagnosis, c.Q.B*c.Q.H)
	for i := range found {
		s, head := p.sequence(i)
		list[s.Batch*c.Q.H+head].Merge(&found[i], s.Q0, false)
	}
	for i := range list {
		if n := float64(list[i].Rows); n > 0 {
			list[i].Entropy /= n
			list[i].Condition /= n
		}
	}
	return list, nil
}
