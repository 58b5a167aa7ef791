package engine

import (
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/snapshot"
	"github.com/farfield-ml/farfield/internal/states"
)

// kind names the states of the mechanism.
func (e *Engine) kind() string {
	if e.Spec.IsPairwise() {
		return states.CacheKind
	}
	return states.SumsKind
}

// Identity returns the kind, name and settings by which a state of the mechanism is recognised.
func (e *Engine) Identity() states.Identity {
	return states.Identity{Kind: e.kind(), Name: e.Spec.Name, Setting: e.Spec.Setting}
}

// ParameterSum returns the checksum of parameters and constants.
func (e *Engine) ParameterSum() snapshot.ParameterSum {
	var sum snapshot.ParameterSum
	for _, p := range slices.Concat(e.ParamSet.All(), e.Constants().All()) {
		sum = snapshot.AddParameters(sum, p.Data)
	}
	return sum
}

// RestoreState returns the state in a snapshot of State.AppendBinary. It returns an error if
// data is damaged or of another mechanism.
func (e *Engine) RestoreState(data []byte) (attention.State, error) {
	if err := e.refuseFuture("snapshot"); err != nil {
		return nil, err
	}
	return states.Restore(data, e, func(s attention.Shape, tokens int64, r *snapshot.Reader) (states.Visited, error) {
		if err := e.CheckHeads(s.H, s.Hkv, s.D); err != nil {
			return nil, err
		}
		if e.Spec.IsPairwise() {
			return e.newCacheFor(s, tokens, r)
		}
		return e.NewStateFor(s, r)
	})
}
