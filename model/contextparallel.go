package model

import (
	"context"
	"fmt"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/tensor"
)

// CanDivide is Model.CanDivide.
func (m *modelOf[T]) CanDivide() error {
	if err := m.CanSegment(max(m.config.Conv, 1)); err != nil {
		return fmt.Errorf("ranks: %w", err)
	}
	for i := range m.main.blocks {
		if a, ok := m.main.blocks[i].mixer.(*nn.Attention[T]); ok {
			if err := a.CanDivide(); err != nil {
				if w := m.config.Set["window"]; w != "" && w != "0" {
					err = fmt.Errorf("%w; it is with setting window=0, which is %s", err, w)
				}
				return fmt.Errorf("ranks: %s: %w", m.config.Mechanism, err)
			}
		}
	}
	return nil
}

// TrainDivided is Model.TrainDivided.
func (m *modelOf[T]) TrainDivided(ctx context.Context, c *comm.Comm, b *Batch, scale T) (loss float64, err error) {
	if b == nil {
		return 0, errNoBatch
	}
	size := (b.N + c.Size() - 1) / c.Size()
	s, t, err := newTrainSegments(ctx, m, b, max(size, 1))
	if err != nil {
		return 0, err
	}
	if (c.Size()-1)*size >= b.N {
		return 0, fmt.Errorf("ranks: a sequence of %d tokens does not give each of %d some", b.N, c.Size())
	}
	p := s.firstContext()
	p.ranks = c
	if loss, err = s.runBackward(p, c.Rank(), t, scale); err == nil {
		err = checkFinite("loss", []float64{loss}, 1)
	}
	return loss / float64(t.counted), err
}

// rowsBefore sets past [B·rows·width] to the last rows of each sequence on the previous
// rank, and to 0 on the first rank. x [B·N,width] holds the rows of this rank.
func rowsBefore[T tensor.Float](c *comm.Comm, past []T, x tensor.Mat[T], b int) error {
	rows := len(past) / b / x.Cols
	return exchangeRows(c, past, x, b, c.Rank()-1, x.Rows/b-rows)
}

// rowsAfter sets next [B·rows·width] to the first rows of each sequence on the next
// rank, and to 0 on the last rank. x [B·N,width] holds the rows of this rank.
func rowsAfter[T tensor.Float](c *comm.Comm, next []T, x tensor.Mat[T], b int) error {
	return exchangeRows(c, next, x, b, c.Rank()+1, 0)
}

// exchangeRows sends the rows of each sequence of x from first on to all ranks, 0 for
// rows that do not exist. It sets dst to the rows of the given rank, or to 0 if there
// is no such rank.
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
