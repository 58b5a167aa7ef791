package engine

import (
	"github.com/farfield-ml/farfield/attention/internal/band"
	"github.com/farfield-ml/farfield/attention/internal/contract"
	"github.com/farfield-ml/farfield/attention/internal/costmodel"
	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// costKernel returns the kernel whose speeds s has.
func costKernel[T tensor.Float](s *headtask.Spec[T]) costmodel.Kernel {
	switch {
	case s.IsPairwise():
		return costmodel.Softmax
	case s.HasMap():
		return costmodel.Mapped
	case s.Degree() == 1:
		return costmodel.Degree1
	case s.Degree() == 2:
		return costmodel.Degree2
	}
	return costmodel.Degree3
}

// Tally counts the work of sequence s, forward or backward.
func (e formChoice[T]) Tally(c *contract.Call[T], s *SequenceTask, back bool) costmodel.Tally {
	width := e.Spec.Width(c.Q.D)
	w, dv, v := float64(width), float64(c.V.D), float64(kernel.Pad(c.V.D))
	group := float64(c.Q.H / max(c.K.H, 1))
	chunk := min(e.Forms().Chunk(c.Q.D, c.Chunk), max(s.N, s.M, 1))

	// A pair has its score, the product of its weight with the value, and the
	// weight itself. A feature of a token is made, and meets values and a sum.
	pair := w + v + 3
	key, query := v+1.5, v+1.5
	if back {
		// The score again and the gradients of weight, query, key and value.
		pair = w + dv + 2*float64(kernel.Pad(width)) + v + 8
		// Keys enter their moments, unless Forward has kept them, and meet the
		// moments of queries in two products. Queries meet the moments of keys and
		// enter their own.
		key, query = v+1.5+dv+3.5, v+1.5+dv+3.5
		if c.Causal || e.Forms().choose(c, s, false) != contract.Linear {
			key += v + 1.5
		}
	}
	pair *= 2 * group
	x := costmodel.Tally{Tokens: float64(s.M) + group*float64(s.N), Causal: c.Causal}
	closed, late := s.M, s.N // keys that enter the moments, queries that meet them
	if e.Spec.WindowWidth > 0 {
		// A tile of queries meets the keys of all their bands.
		x.Pairs = pair * float64(s.N) * float64(min(e.Spec.WindowWidth+min(s.N, band.TileRows(c.Q.D))-1, s.M))
	} else if c.Causal {
		// A panel sees what its last query sees.
		beyond := float64(min(s.N, headtask.PanelRows)-1) / 2 * float64(s.N)
		x.Pairs = pair * (costmodel.CausalPairs(s.N+s.Offset, s.M) - costmodel.CausalPairs(s.Offset, s.M) + beyond)
		x.Open = pair * (costmodel.ChunkPairs(s.N+s.Offset, chunk) - costmodel.ChunkPairs(s.Offset, chunk) + beyond)
		closed = min(s.M, max(s.N+s.Offset-1, 0)/chunk*chunk)
		late = s.N - min(max(chunk-s.Offset, 0), s.N)
	} else {
		x.Pairs = pair * float64(s.N) * float64(s.M)
	}
	features := e.Spec.CountFeatures(e.Spec.FeatureWidth(c.Q.D, c.Rope != nil))
	x.Moments = 2 * float64(features) * (key*float64(closed) + group*query*float64(late))
	return x
}

// CountCosts returns the costs of a key head with its query heads in both forms;
// see Plan.
func (e formChoice[T]) CountCosts(c *contract.Call[T], s *SequenceTask, back bool) (direct, linear float64) {
	x, v := e.Tally(c, s, back), e.speeds.Interpolate(costKernel(&e.Spec), c.Q.D, c.Causal, back)
	return x.DirectCost(v), x.LinearCost(v)
}
