package sequence

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/tensor"
)

// parts is what a rank knows of all parts before it reads their sums.
type parts struct {
	spans  []attention.Span // of what comes before this rank, or with unmasked calls of all
	tokens int64            // likewise
	decay  bool             // some rank's tokens have met a decay
	left   [][]float64      // with decay, what each rank leaves of the sums before it
}

// meet has the ranks tell each other what they have summed, and whether they could.
// What goes to each of them has the same length whatever the tokens are.
func meet[T tensor.Float](c *comm.Comm, m attention.Mechanism[T], call *attention.Call[T], own *attention.Total[T], failed error) (*parts, error) {
	if err := comm.Together(c, failed); err != nil {
		return nil, err
	}
	var element T
	heads := call.K.B * call.K.H
	shape := fmt.Sprintf("%s (%s) of [B %d, H %d, Hkv %d, D %d, Dv %d], causal %t, chunk %d, %d bytes a number",
		m.Traits().Name, m.Setting(), call.Q.B, call.Q.H, call.K.H, call.Q.D, call.V.D, call.Causal, call.Chunk, unsafe.Sizeof(element))
	all, err := comm.AllGather(c, appendTotal(nil, own, shape))
	if err != nil {
		return nil, err
	}
	totals := make([]attention.Total[T], len(all))
	for r, b := range all {
		theirs, err := readTotal(&totals[r], b, heads)
		switch {
		case theirs != "" && theirs != shape:
			return nil, fmt.Errorf("rank %d computes %s, rank %d %s", r, theirs, c.Rank(), shape)
		case err != nil:
			return nil, fmt.Errorf("rank %d: %w", r, err)
		}
	}
	p := &parts{spans: make([]attention.Span, heads)}
	before := make([]attention.Span, heads)
	for r := range totals {
		t := &totals[r]
		p.decay = p.decay || t.Decay
		left := make([]float64, heads)
		for i, span := range t.Spans {
			left[i] = span.Leaves(before[i])
			before[i] = before[i].Then(span)
		}
		p.left = append(p.left, left)
		if !call.Causal || r < c.Rank() {
			copy(p.spans, before)
			p.tokens += t.Tokens
		}
	}
	if !p.decay || heads == 0 {
		p.left = nil
	}
	return p, nil
}

// appendTotal appends the shape and what there is of t beside its sums.
func appendTotal[T tensor.Float](b []byte, t *attention.Total[T], shape string) []byte {
	flag := func(x bool) {
		if x {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(len(shape)))
	b = append(b, shape...)
	b = binary.LittleEndian.AppendUint64(b, uint64(t.Tokens))
	flag(t.Decay)
	for _, s := range t.Spans {
		flag(s.Seen)
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(s.Gone))
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(s.Owes))
	}
	return b
}

// readTotal reads what appendTotal has written for that many heads.
func readTotal[T tensor.Float](t *attention.Total[T], b []byte, heads int) (shape string, err error) {
	short := errors.New("what it tells of its part is of another length")
	if len(b) < 8 {
		return "", short
	}
	n := binary.LittleEndian.Uint64(b)
	if b = b[8:]; n > uint64(len(b)) {
		return "", short
	}
	shape, b = string(b[:n]), b[n:]
	if len(b) != 9+17*heads {
		return shape, short
	}
	t.Tokens, t.Decay = int64(binary.LittleEndian.Uint64(b)), b[8] == 1
	for b = b[9:]; len(b) > 0; b = b[17:] {
		t.Spans = append(t.Spans, attention.Span{
			Seen: b[0] == 1,
			Gone: math.Float64frombits(binary.LittleEndian.Uint64(b[1:])),
			Owes: math.Float64frombits(binary.LittleEndian.Uint64(b[9:])),
		})
	}
	return shape, nil
}
