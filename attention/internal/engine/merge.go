package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/farfield-ml/farfield/attention/internal/contract"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/tensor"
)

// ErrNotMergeable says that a state cannot be followed by another of its kind.
var ErrNotMergeable = errors.New("state: not mergeable")

// fits reports what keeps a state of shape s, of mechanism from, out of the place
// of one of shape want of mechanism id. Learned parameters are no part of it.
// What names the state.
func (id Identity) fits(what string, want *contract.Shape, from Identity, s *contract.Shape) error {
	if from.Name != id.Name {
		return fmt.Errorf("%s: mechanism is %q, needs %q", what, from.Name, id.Name)
	}
	if from.Setting != id.Setting {
		return fmt.Errorf("%s: setting is %q, needs %q", what, from.Setting, id.Setting)
	}
	for _, x := range []struct {
		field     string
		got, want int
	}{
		{"B", s.B, want.B}, {"H", s.H, want.H}, {"Hkv", s.Hkv, want.Hkv}, {"D", s.D, want.D}, {"Dv", s.Dv, want.Dv}, {"chunk", s.Chunk, want.Chunk},
	} {
		if x.got != x.want {
			return fmt.Errorf("%s: %s is %d, needs %d", what, x.field, x.got, x.want)
		}
	}
	if s.Carry != want.Carry {
		return fmt.Errorf("%s: carry is %v, needs %v", what, s.Carry, want.Carry)
	}
	return nil
}

// Mergeable returns next as a state of kind S that can follow a state of shape s and
// identity id. parts returns the identity and the shape of a state. It returns an error
// if kind, identity or shape differ.
func Mergeable[S interface {
	comparable
	contract.State[T]
}, T tensor.Float](id Identity, s *contract.Shape, next contract.State[T], parts func(S) (Identity, *contract.Shape)) (S, error) {
	n, ok := next.(S)
	var none S
	if !ok || n == none {
		return none, fmt.Errorf("merge: kind of state is %T, needs %T: %w", next, none, ErrNotMergeable)
	}
	from, shape := parts(n)
	return n, id.fits("merge", s, from, shape)
}

// Merge closes the open chunk of s, so that chunks end elsewhere than if all
// tokens had come in one stream. It returns the errors of Mergeable.
func (s *RecurrentState[T]) Merge(next contract.State[T]) error {
	n, err := Mergeable(s.Engine.Identity(), &s.Shape, next, func(n *RecurrentState[T]) (Identity, *contract.Shape) { return n.Engine.Identity(), &n.Shape })
	if err != nil || n.TokenCount == 0 {
		return err
	}
	if n == s {
		n = s.Clone().(*RecurrentState[T])
	}
	s.HasClosedCount = false
	ar := arena.Acquire()
	defer ar.Release()
	for i, st := range s.Heads {
		if s.TokenCount == 0 {
			st.CopyFrom(n.Heads[i])
			continue
		}
		st.Task.Arena = ar
		st.MergeNext(n.Heads[i])
		st.Task.Arena = nil
	}
	s.TokenCount += n.TokenCount
	return nil
}

// Merge appends the keys and values of next to s. Queries get the same bits as after
// one stream of all tokens; with decay they agree within the bound.
func (s *keyCache[T]) Merge(next contract.State[T]) error {
	n, err := Mergeable(s.e.Identity(), &s.shape, next, func(n *keyCache[T]) (Identity, *contract.Shape) { return n.e.Identity(), &n.shape })
	if err != nil || n.tokens == 0 {
		return err
	}
	tokens, da := n.tokens, s.e.Spec.Width(s.shape.D)
	for b := range s.valid {
		s.valid[b] = slices.Concat(s.valid[b], n.valid[b][:tokens])
	}
	s.hasMasked = s.hasMasked || n.hasMasked
	if n.HasDecay() {
		s.startAges()
	}
	for i := range s.heads {
		s.heads[i].rows.Append(s.tokens, &n.heads[i].rows, tokens, da)
		if s.HasDecay() {
			s.heads[i].ages.AppendAges(n.heads[i].ages, n.valid[i/s.shape.Hkv][:tokens])
		}
	}
	s.tokens += tokens
	return nil
}
