package model

import (
	"context"
	"fmt"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/tensor"
)

// CanDivide returns an error if the model cannot divide sequences among ranks. It can if it
// trains in segments (CanSegment) and the states of its attention are sums.
func (m *Model) CanDivide() error {
	if err := m.CanSegment(max(m.config.Conv, 1)); err != nil {
		return fmt.Errorf("ranks: %w", err)
	}
	for i := range m.main.blocks {
		if a, ok := m.main.blocks[i].mixer.(*nn.Attention); ok {
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

// TrainDivided computes Forward and Backward of b with sequences divided among ranks. Each
// rank has an equal number of tokens; the last rank has the remainder. Every rank gets
// all of b and has the same weights.
//
// All ranks go through the layers at the same time. Attention exchanges totals of
// states forward and their gradients backward (package internal/sequence). Convolutions
// exchange the rows at the ends. The memory of a rank grows with its own tokens.
//
// TrainDivided returns the loss of the rank's tokens and adds the gradient of that loss
// to the gradients of the weights. The sums over ranks are the loss and the gradient of
// b.
//
// It returns an error if CanDivide does, b does not fit the model, a rank would have no
// tokens, or the exchange fails, and attention.ErrNonFinite if the loss is not finite.
func (m *Model) TrainDivided(ctx context.Context, c *comm.Comm, b *Batch, scale tensor.Float) (loss float64, err error) {
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
func rowsBefore(c *comm.Comm, past []float, x tensor.Mat, b int) error {
	rows := len(past) / b / x.Cols
	return exchangeRows(c, past, x, b, c.Rank()-1, x.Rows/b-rows)
}

// rowsAfter sets next [B·rows·width] to the first rows of each sequence on the next
// rank, and to 0 on the last rank. x [B·N,width] holds the rows of this rank.
func rowsAfter(c *comm.Comm, next []float, x tensor.Mat, b int) error {
	return exchangeRows(c, next, x, b, c.Rank()+1, 0)
}

// exchangeRows sends rows of each sequence of x, from row first on, to all ranks, with zeros
// for rows that do not exist. It sets dst to the rows of the given rank, or to 0 if there
// is no such rank. It returns the error of the exchange.
func exchangeRows(c *comm.Comm, dst []float, x tensor.Mat, b, rank, first int) error {
	n, w := x.Rows/b, x.Cols
	rows := len(dst) / b / w
	own := make([]float, len(dst))
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
