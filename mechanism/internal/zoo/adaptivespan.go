package zoo

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/param"
)

// adaptiveSpans is softmax with the weights m(i-j)·exp(scale·q·k), where m(x) is
// (R+z-|x|)/R, clamped to 0 ≤ m ≤ 1 (Sukhbaatar et al. 2019, section 2.2).
type adaptiveSpans struct {
	name, setting string
	params        *param.Set
	span          *param.Param
	ramp, penalty float64
	limit         int
	softmax       *headwise.PatternSoftmax
}

func NewAdaptiveSpans(r *entry.Reader) (headwise.Function, error) {
	scale, err := r.SoftmaxScale()
	if err != nil {
		return nil, err
	}
	limit, err := r.Integer("limit", 1, 1<<20)
	if err != nil {
		return nil, err
	}
	start, err := r.Positive("span", "0")
	if err != nil {
		return nil, err
	}
	ramp, err := r.Positive("ramp", "")
	if err != nil {
		return nil, err
	}
	if ramp > 1<<20 {
		return nil, r.Refuse("ramp", "a number from 1e-30 to 1048576")
	}
	penalty, err := r.Positive("penalty", "0")
	if err != nil {
		return nil, err
	}
	s := &adaptiveSpans{
		name: r.Name, setting: fmt.Sprintf("adaptive-span ramp=%v limit=%d scale=%s", ramp, limit, entry.FormatScale(scale)),
		params: new(param.Set), ramp: ramp, penalty: penalty, limit: limit,
	}
	s.span = s.params.New("span", false, max(r.Heads, 1))
	for h := range s.span.Data {
		s.span.Data[h] = float(start)
	}
	s.softmax = &headwise.PatternSoftmax{Scale: scale, Bias: s}
	return s, nil
}

func (s *adaptiveSpans) Traits() attention.Traits {
	return attention.Traits{Name: s.name, Positive: true, Causal: true, Streaming: true, PlacedQueries: true}
}

func (s *adaptiveSpans) Setting() string       { return s.setting }
func (s *adaptiveSpans) Params() *param.Set    { return s.params }
func (s *adaptiveSpans) Constants() *param.Set { return nil }

// Reach returns the window of the longest span that a head can learn.
func (s *adaptiveSpans) Reach() (keys, period int) { return s.limit + int(math.Ceil(s.ramp)), 1 }

func (s *adaptiveSpans) Check(c *attention.Call) error {
	if n := len(s.span.Data); n > 1 && c.Q.H > n {
		return fmt.Errorf("q: has %d heads, span has %d", c.Q.H, n)
	}
	return nil
}

// spanIndex returns the index of the span of a head.
func (s *adaptiveSpans) spanIndex(head int) int { return min(head, len(s.span.Data)-1) }

// clampedSpan returns the span of a head, at least 0 and at most limit.
func (s *adaptiveSpans) clampedSpan(head int) float64 {
	return min(max(float64(s.span.Data[s.spanIndex(head)]), 0), float64(s.limit))
}

func (s *adaptiveSpans) addPairs(p *headwise.Pattern, x headGeometry) {
	reach := int(math.Ceil(s.clampedSpan(x.head)+s.ramp)) - 1 // weights are 0 beyond it
	near := slidingWindow{reach, reach}
	near.addPairs(p, x)
}

func (s *adaptiveSpans) Cost(x attention.Shape) headwise.Cost { return pairsCost(s, x) }

func (s *adaptiveSpans) Forward(h *headwise.Head) {
	pairs := visiblePairs(s, h)
	defer pairs.Release()
	s.softmax.Forward(h, h.SaveBuffer(h.Q.Rows), pairs)
	h.Aux = s.penalty * s.clampedSpan(h.Head)
}

func (s *adaptiveSpans) Backward(h *headwise.Head, g *headwise.Grads) {
	pairs := visiblePairs(s, h)
	defer pairs.Release()
	g.Clear()
	s.softmax.Backward(h, g, h.Out, g.DOut, h.Saved, pairs)
	if s.hasSpanGrad(h.Head) {
		g.Params[0][s.spanIndex(h.Head)] += float(s.penalty) * g.DAux
	}
}

// hasSpanGrad reports whether the span of a head is within its limits, where it has a
// gradient.
func (s *adaptiveSpans) hasSpanGrad(head int) bool {
	z := float64(s.span.Data[s.spanIndex(head)])
	return z >= 0 && z <= float64(s.limit)
}

// forEachFadingPair calls f for the pairs of a tile with m below 1, with the index of
// the score and m.
func (s *adaptiveSpans) forEachFadingPair(t *headwise.PatternTile, f func(at int, m float64)) {
	z, off := s.clampedSpan(t.Head.Head), t.Head.Offset
	for r := range t.Rows {
		at := t.Query(r) + off
		from, end := t.Visible(r)
		for c := from; c < end; c++ {
			x := math.Abs(float64(at - t.Key(c)))
			if x <= z {
				// The next keys are within the span as well, up to z tokens after the query.
				c = max(c, min(end, at+int(z)+1-t.Key(0))-1)
				continue
			}
			f(r*t.LD+c, (s.ramp+z-x)/s.ramp)
		}
	}
}

// Add adds ln m to the scores of a tile.
func (s *adaptiveSpans) Add(t *headwise.PatternTile) {
	over := 1 / float64(t.Scale)
	s.forEachFadingPair(t, func(at int, m float64) { t.S[at] += float(math.Log(m) * over) })
}

// Grad adds Σ ds/m·dm/dz to the gradient of z.
func (s *adaptiveSpans) Grad(t *headwise.PatternTile, g *headwise.Grads) {
	if !s.hasSpanGrad(t.Head.Head) {
		return
	}
	var dz float64
	s.forEachFadingPair(t, func(at int, m float64) { dz += float64(t.S[at]) / (m * s.ramp) })
	g.Params[0][s.spanIndex(t.Head.Head)] += float(dz)
}
