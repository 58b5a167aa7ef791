package engine

import (
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/states"
)

// Merge appends the tokens of next to s. It closes the open chunk of s, so chunks end at other
// tokens than in one stream. It returns the errors of states.Merge.
func (s *RecurrentState) Merge(next attention.State) error {
	return states.Merge(s, next, func(n *RecurrentState) error {
		s.HasClosedCount = false
		ar := arena.Acquire()
		defer ar.Release()
		for i, st := range s.Heads {
			st.Task.Arena = ar
			st.MergeNext(n.Heads[i])
			st.Task.Arena = nil
		}
		s.TokenCount += n.TokenCount
		return nil
	})
}

// Merge appends the keys and values of next to s. Later outputs have the same bits as after one
// stream of all tokens; with decay they agree within the error bound.
func (s *keyCache) Merge(next attention.State) error {
	return states.Merge(s, next, func(n *keyCache) error {
		for b := range s.valid {
			s.valid[b] = slices.Concat(s.valid[b], n.valid[b])
		}
		s.hasMasked = s.hasMasked || n.hasMasked
		if n.HasDecay() {
			s.startAges()
		}
		for i := range s.heads {
			s.heads[i].rows.Append(s.tokens, &n.heads[i].rows, n.tokens, s.e.Spec.Width(s.shape.D))
			if s.HasDecay() {
				s.heads[i].ages.AppendAges(n.heads[i].ages, n.valid[i/s.shape.Hkv])
			}
		}
		s.tokens += n.tokens
		return nil
	})
}
