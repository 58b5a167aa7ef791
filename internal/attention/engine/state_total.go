package engine

import (
	"fmt"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/states"
)

// size is the number of elements of a total's sums.
func (s *RecurrentState) size() int {
	size := 0
	for _, h := range s.Heads {
		size += h.Monomials.Count * (1 + h.Task.Dv)
	}
	return size
}

// Total sets t to the total of s. It closes the open chunk.
func (s *RecurrentState) Total(t *states.Total) {
	ar := arena.Acquire()
	defer ar.Release()
	t.Tokens, t.Decay = s.TokenCount, s.HasDecay()
	t.Sums, t.Spans = t.Sums[:0], t.Spans[:0]
	for _, h := range s.Heads {
		h.Task.Arena = ar
		h.CloseChunk()
		h.Task.Arena = nil
		span := states.Span{HasKeys: h.First != headtask.Unseen}
		if h.Decays != nil {
			span.LogDecay, span.PendingLogDecay = h.Decays.Forgotten, h.Decays.Pending
		}
		t.Spans = append(t.Spans, span)
		t.Sums = h.Moments.AppendFlat(t.Sums, h.Task.Dv)
	}
}

// SetTotal replaces the content of s by the total t. It returns an error if t has other heads
// or sums.
func (s *RecurrentState) SetTotal(t *states.Total) error {
	if len(t.Spans) != len(s.Heads) {
		return fmt.Errorf("total: has %d heads, the state %d", len(t.Spans), len(s.Heads))
	}
	if size := s.size(); len(t.Sums) != size {
		return fmt.Errorf("total: has %d sums, the state %d", len(t.Sums), size)
	}
	s.Reset()
	s.TokenCount = t.Tokens
	sums := t.Sums
	for i, h := range s.Heads {
		span := t.Spans[i]
		sums = h.Moments.SetFlat(sums, h.Task.Dv)
		if h.Moments.NonEmpty = span.HasKeys; span.HasKeys {
			h.First = -1
		}
		if h.Moments.Residual != nil {
			clear(h.Moments.Residual.S)
			clear(h.Moments.Residual.Z)
		}
		if t.Decay {
			h.Decays = headtask.HeapAges(h.ChunkSize)
			h.Decays.Forgotten, h.Decays.Pending = span.LogDecay, span.PendingLogDecay
		}
	}
	return nil
}

// TotalAges appends to the slice to, for each key head, the part of StateGrad.Ages that comes
// from the keys of a total. It returns an error if the lengths of sums and gradient do not fit
// s.
func (s *RecurrentState) TotalAges(to []float64, sums, gradient []float) ([]float64, error) {
	if len(gradient) != len(sums) {
		return nil, fmt.Errorf("total: has %d sums, its gradient %d", len(sums), len(gradient))
	}
	if size := s.size(); len(sums) != size {
		return nil, fmt.Errorf("total: has %d sums, the state %d", len(sums), size)
	}
	at := 0
	for _, h := range s.Heads {
		var sum float64
		for f := range h.Monomials.Count {
			var along float64
			for c := range 1 + h.Task.Dv {
				along += float64(sums[at+c]) * float64(gradient[at+c])
			}
			sum -= float64(h.Monomials.Weights[f]) * along
			at += 1 + h.Task.Dv
		}
		to = append(to, sum)
	}
	return to, nil
}
