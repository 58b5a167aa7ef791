package model

import (
	"fmt"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/tensor"
)

// CanDivide reports why sequences cannot be divided among ranks, which they can where
// they can be taken in segments and the states of attention are sums.
func (m *Model[T]) CanDivide() error {
	if err := m.CanSegment(max(m.config.Conv, 1)); err != nil {
		return fmt.Errorf("ranks: %w", err)
	}
	for i := range m.main.blocks {
		if a, ok := m.main.blocks[i].mixer.(*nn.Attention[T]); ok {
			if err := a.CanDivide(); err != nil {
				return fmt.Errorf("ranks: %s: %w", m.config.Mechanism, err)
			}
		}
	}
	return nil
}

// TrainDivided is Forward and Backward of b, whose sequences are divided among ranks,
// as many tokens to each, the last with what is left. All ranks are given all of b and
// have the same weights. They go through the layers at the same time: attention
// exchanges the totals of its states, forward those before a rank and backward the
// gradients of those after it (package comm/sequence), and convolutions the few rows
// that they see of the rank beside. A rank's memory grows with its own tokens. It
// returns the rank's share of the loss and adds its share of the gradient: both add up
// over the ranks to those of the whole.
func (m *Model[T]) TrainDivided(c *comm.Comm, b *Batch, scale T) (loss float64, err error) {
	if b == nil {
		return 0, errNoBatch
	}
	size := (b.N + c.Size() - 1) / c.Size()
	s, t, err := m.trainableSegments(b, max(size, 1))
	if err != nil {
		return 0, err
	}
	if (c.Size()-1)*size >= b.N {
		return 0, fmt.Errorf("ranks: a sequence of %d tokens does not give each of %d some", b.N, c.Size())
	}
	p := s.firstContext()
	p.ranks = c
	loss, err = s.runBackward(p, c.Rank(), t, scale)
	return loss / float64(t.counted), err
}

// rowsBefore sets past [B·rows·width] to the last rows of each sequence on the rank before,
// zero on the first rank, where x [B·N,width] are those of this one.
func rowsBefore[T tensor.Float](c *comm.Comm, past []T, x tensor.Mat[T], b int) error {
	rows := len(past) / b / x.Cols
	return exchangeRows(c, past, x, b, c.Rank()-1, x.Rows/b-rows)
}

// rowsAfter sets next [B·rows·width] to the first rows of each sequence on the rank after,
// zero on the last rank, where x [B·N,width] are those of this one.
func rowsAfter[T tensor.Float](c *comm.Comm, next []T, x tensor.Mat[T], b int) error {
	return exchangeRows(c, next, x, b, c.Rank()+1, 0)
}

// exchangeRows has each rank give the rows of its sequences from first on, zero where it has
// none, and sets dst to those of a rank, or to zero where there is no such rank.
func exchangeRows[T tensor.Float](c *comm.Comm, dst []T, x tensor.Mat[T], b, rank, first int) error {
	n, w := x.Rows/b, x.Cols
	rows := len(dst) / b / w
	own := make([]T, len(dst))
	for i := range b * rows {
		if at := first + i%rows; at >= 0 && at < n {
			copy(own[i*w:][:w], x.Row(i/rows*n+at))
		}
	}
	all, err := comm.AllGather(c, own)
	if err != nil {
		return err
	}
	clear(dst)
	if rank >= 0 && rank < c.Size() {
		copy(dst, all[rank])
	}
	return nil
}
