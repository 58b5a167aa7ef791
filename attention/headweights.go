package attention

import (
	"errors"
	"fmt"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// unitColumns is the number of keys whose columns of the attention matrix are
// computed at a time, as the outputs of unit vectors.
const unitColumns = 64

// columns calls f with the attention matrix of one head of a sequence, some
// columns after the other: a [n-left, keys from j0 on] in scratch memory, of the
// queries from left on. The first left queries see no key.
func (w *headwise[T]) columns(c *Call[T], s *sequence, head int, f func(a tensor.Mat[T], left, j0 int)) {
	ar := arena.Acquire()
	defer ar.Release()
	h := w.head()
	defer w.putHead(h)
	left := w.open(h, c, s, head, ar)
	if left == s.n {
		return
	}
	one := *h
	for j0 := 0; j0 < s.m; j0 += unitColumns {
		mark := ar.Mark()
		n := min(unitColumns, s.m-j0)
		*h = one
		h.V = tensor.Mat[T]{Data: arena.Zeros[T](ar, s.m*n), Rows: s.m, Cols: n, Stride: n}
		for j := range n {
			if h.Exists(j0 + j) {
				h.V.Row(j0 + j)[j] = 1
			}
		}
		h.Out = scratchMat[T](ar, s.n-left, n)
		w.Headwise.Forward(h)
		f(h.Out, left, j0)
		ar.Reset(mark)
	}
}

// checkRows reports rows of the attention matrix that c does not have.
func (c *Call[T]) checkRows(dst tensor.Mat[T], b, h, i0, i1 int) error {
	switch {
	case c.segmented():
		return fmt.Errorf("weights: not defined with a state before or after the call")
	case b < 0 || b >= c.Q.B:
		return fmt.Errorf("weights: batch row %d of %d", b, c.Q.B)
	case h < 0 || h >= c.Q.H:
		return fmt.Errorf("weights: head %d of %d", h, c.Q.H)
	case i0 < 0 || i0 > i1 || i1 > c.Q.N:
		return fmt.Errorf("weights: queries %d to %d of %d", i0, i1, c.Q.N)
	case dst.Rows != i1-i0 || dst.Cols != c.K.N:
		return fmt.Errorf("weights: destination is [%d,%d], needs [%d,%d]", dst.Rows, dst.Cols, i1-i0, c.K.N)
	}
	return dst.Check("weights")
}

// Unpaired is a Headwise without an attention matrix: its outputs are no sums over
// keys.
type Unpaired interface{ Unpaired() string }

// ErrNoMatrix is of what asks for rows of A where there is no A.
var ErrNoMatrix = errors.New("no attention matrix")

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
	if err := c.checkRows(dst, b, h, i0, i1); err != nil {
		return err
	}
	clearRows(dst, 0, dst.Rows)
	seqs := c.sequences()
	for i := range seqs {
		s := &seqs[i]
		if s.b != b || max(i0, s.q0) >= min(i1, s.q0+s.n) {
			continue
		}
		w.columns(c, s, h, func(a tensor.Mat[T], left, j0 int) {
			for r := range a.Rows {
				if at := s.q0 + left + r; i0 <= at && at < i1 {
					copy(dst.Row(at - i0)[s.k0+j0:], a.Row(r))
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
	par.Do(p.units, p.work*float64(1+c.K.N/unitColumns), func(i int) {
		s, head := p.sequence(i)
		rows := make([]diagnosedRow, s.n)
		w.columns(c, s, head, func(a tensor.Mat[T], left, j0 int) {
			for r := range a.Rows {
				for _, x := range a.Row(r) {
					rows[left+r].weight(float64(x), 1)
				}
			}
		})
		for r := range rows {
			x := &rows[r]
			if x.seen == 0 || x.size == 0 {
				found[i].Unseen++
				continue
			}
			one := Diagnosis{Rows: 1, Entropy: x.entropy(), Condition: x.size, MinDen: x.sum}
			one.MinEntropy, one.MaxCondition = one.Entropy, one.Condition
			found[i].add(&one, r, false)
		}
	})
	list := make([]Diagnosis, c.Q.B*c.Q.H)
	for i := range found {
		s, head := p.sequence(i)
		list[s.b*c.Q.H+head].add(&found[i], s.q0, false)
	}
	for i := range list {
		if n := float64(list[i].Rows); n > 0 {
			list[i].Entropy /= n
			list[i].Condition /= n
		}
	}
	return list, nil
}
