package sequence

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/states"
	"github.com/farfield-ml/farfield/tensor"
)

// ExchangeState replaces st, a state of m that holds the keys of this rank, by the state of the
// keys that the queries of this rank see: in causal calls the keys of the ranks before it,
// otherwise the keys of all ranks. failed is an earlier error of this rank, or nil; with an
// error st may be nil. An error of one rank is returned on all ranks.
func ExchangeState(c *comm.Comm, m attention.Mechanism, st attention.State, causal bool, failed error) error {
	if m.Traits().Segments {
		return exchangePassed(c, m, st, causal, failed)
	}
	var t states.Total
	if failed == nil {
		failed = totalOf(&t, m, st)
	}
	what := fmt.Sprintf("%s (%s), causal %t, %d sums", m.Traits().Name, m.Setting(), causal, len(t.Sums))
	if _, err := exchangeTotals(c, &t, causal, what, failed, func([]tensor.Float) {}); err != nil {
		return err
	}
	return states.SetTotal(st, &t)
}

// exchangeTotals replaces t, the total of this rank, by the total of the keys that its queries
// see besides its own. It first calls keep with the rank's own sums. With a decay it also
// returns the factors by which each rank multiplies the sums before it. what describes the call
// and must be equal on all ranks.
func exchangeTotals(c *comm.Comm, t *states.Total, causal bool, what string, failed error, keep func(own []tensor.Float)) (*rankTotals, error) {
	all, err := gatherEnds(c, t, causal, what, failed)
	if err != nil {
		return nil, err
	}
	keep(t.Sums)
	if causal {
		err = comm.ExclusiveScan(c, t.Sums, all.decayFactors)
	} else {
		err = comm.AllReduce(c, t.Sums)
	}
	t.Spans, t.Tokens, t.Decay = all.spans, all.tokens, all.decay
	return all, err
}

// rankTotals describes the other ranks' totals, without their sums.
type rankTotals struct {
	spans        []states.Span // of the tokens before this rank, in unmasked calls of all tokens
	tokens       int64         // likewise
	decay        bool          // the tokens of some rank have a decay
	decayFactors [][]float64   // with decay, each rank's factors of the sums before it
}

// gatherEnds checks that all ranks make the same call without an error, and exchanges
// their totals without the sums. Its bytes do not depend on the tokens.
func gatherEnds(c *comm.Comm, t *states.Total, causal bool, what string, failed error) (*rankTotals, error) {
	if err := comm.ShareError(c, failed); err != nil {
		return nil, err
	}
	if err := comm.CheckAgreement(c, comm.Field{Name: "call", Value: what}); err != nil {
		return nil, err
	}
	told, err := comm.AllGather(c, appendEnds(nil, t))
	if err != nil {
		return nil, err
	}
	heads := len(t.Spans)
	p := &rankTotals{spans: make([]states.Span, heads)}
	before := make([]states.Span, heads)
	for r, b := range told {
		var other states.Total
		if err := readEnds(&other, b, heads); err != nil {
			return nil, fmt.Errorf("rank %d: %w", r, err)
		}
		p.decay = p.decay || other.Decay
		left := make([]float64, heads)
		for i, span := range other.Spans {
			left[i] = span.Leaves(before[i])
			before[i] = before[i].Join(span)
		}
		p.decayFactors = append(p.decayFactors, left)
		if !causal || r < c.Rank() {
			copy(p.spans, before)
			p.tokens += other.Tokens
		}
	}
	if !p.decay || heads == 0 {
		p.decayFactors = nil
	}
	return p, nil
}

// Bytes of a total beside its sums, and of a span.
const endsBytes, spanBytes = 8 + 1, 1 + 8 + 8

// appendEnds appends the fields of t, its sums apart.
func appendEnds(b []byte, t *states.Total) []byte {
	flag := func(x bool) {
		if x {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(t.Tokens))
	flag(t.Decay)
	for _, s := range t.Spans {
		flag(s.HasKeys)
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(s.LogDecay))
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(s.PendingLogDecay))
	}
	return b
}

// readEnds parses the bytes of appendEnds for the given number of heads.
func readEnds(t *states.Total, b []byte, heads int) error {
	if len(b) != endsBytes+spanBytes*heads {
		return errors.New("tells of another number of heads")
	}
	t.Tokens, t.Decay = int64(binary.LittleEndian.Uint64(b)), b[8] == 1
	for b = b[endsBytes:]; len(b) > 0; b = b[spanBytes:] {
		t.Spans = append(t.Spans, states.Span{
			HasKeys:         b[0] == 1,
			LogDecay:        math.Float64frombits(binary.LittleEndian.Uint64(b[1:])),
			PendingLogDecay: math.Float64frombits(binary.LittleEndian.Uint64(b[9:])),
		})
	}
	return nil
}
