package engine

import (
	"errors"
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention/internal/contract"
	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/tensor"
)

// Total is the content of a state of sums in a form that adds up. If a sequence is
// divided into parts, the sum of the totals of earlier parts is the total of the state
// before a part. Its size does not depend on the number of tokens. The zero value is
// ready for use; memory is reused.
type Total[T tensor.Float] struct {
	// Sums [B·Hkv, F, 1+Dv] are for every feature the sum of its products with the
	// ones under the values, and with the values.
	Sums   []T
	Spans  []Span // [B·Hkv]
	Tokens int64
	Decay  bool // the tokens have met a decay
}

// Span is the effect of a part's tokens on the sums before them.
type Span struct {
	HasKeys         bool    // one of their keys is unmasked
	LogDecay        float64 // Σ log_g up to the last unmasked key
	PendingLogDecay float64 // Σ log_g after it, deferred to the next unmasked key
}

// Leaves returns the factor by which the tokens of s multiply the sums of the span
// before.
func (s Span) Leaves(before Span) float64 {
	if !s.HasKeys {
		return 1
	}
	return math.Exp(before.PendingLogDecay + s.LogDecay)
}

// Join returns the span of the tokens of s followed by the tokens of next.
func (s Span) Join(next Span) Span {
	if !next.HasKeys {
		s.PendingLogDecay = max(s.PendingLogDecay+next.PendingLogDecay, headtask.Slowest)
		return s
	}
	return Span{true, max(s.LogDecay+s.PendingLogDecay+next.LogDecay, headtask.Slowest), next.PendingLogDecay}
}

var errNoTotal = errors.New("total: it is nil")

// sumState is a state of sums over features. Functions ask for it and not for its type: each
// package that names the type compiles the whole engine again.
type sumState[T tensor.Float] interface {
	total(t *Total[T])
	setTotal(t *Total[T]) error
	ages(to []float64, sums, gradient []T) ([]float64, error)
}

// ofSums returns st as a state of sums.
func ofSums[T tensor.Float](st contract.State[T]) (sumState[T], error) {
	s, ok := st.(sumState[T])
	if !ok {
		return nil, fmt.Errorf("total: a %T is not made of sums", st)
	}
	return s, nil
}

// size is the number of elements of a total's sums.
func (s *RecurrentState[T]) size() int {
	size := 0
	for _, h := range s.Heads {
		size += h.Monomials.Count * (1 + h.Task.Dv)
	}
	return size
}

// TotalOf sets t to the total of st. The chunk of st ends: the next chunk begins with
// the next token. It returns an error if st is no state of sums over features.
func TotalOf[T tensor.Float](t *Total[T], st contract.State[T]) error {
	s, err := ofSums(st)
	if err != nil {
		return err
	}
	if t == nil {
		return errNoTotal
	}
	s.total(t)
	return nil
}

func (s *RecurrentState[T]) total(t *Total[T]) {
	ar := arena.Acquire()
	defer ar.Release()
	t.Tokens, t.Decay = s.TokenCount, s.HasDecay()
	t.Sums, t.Spans = t.Sums[:0], t.Spans[:0]
	for _, h := range s.Heads {
		h.Task.Arena = ar
		h.CloseChunk()
		h.Task.Arena = nil
		span := Span{HasKeys: h.First != headtask.Unseen}
		if h.Decays != nil {
			span.LogDecay, span.PendingLogDecay = h.Decays.Forgotten, h.Decays.Pending
		}
		t.Spans = append(t.Spans, span)
		t.Sums = h.Moments.AppendFlat(t.Sums, h.Task.Dv)
	}
}

// SetTotal makes st a state with the total t. It returns an error if st is no state of
// sums over features, or t has other heads or sums than st.
func SetTotal[T tensor.Float](st contract.State[T], t *Total[T]) error {
	s, err := ofSums(st)
	if err != nil {
		return err
	}
	if t == nil {
		return errNoTotal
	}
	return s.setTotal(t)
}

func (s *RecurrentState[T]) setTotal(t *Total[T]) error {
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

// AgesOf appends to the slice to [n], for each key head, the part of StateGrad.Ages that
// comes from the keys of a state. sums [s] and gradient [s] have the order of
// Total.Sums of a state like st. It returns an error if their lengths do not fit st.
func AgesOf[T tensor.Float](to []float64, st contract.State[T], sums, gradient []T) ([]float64, error) {
	s, err := ofSums(st)
	if err != nil {
		return nil, err
	}
	return s.ages(to, sums, gradient)
}

func (s *RecurrentState[T]) ages(to []float64, sums, gradient []T) ([]float64, error) {
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
