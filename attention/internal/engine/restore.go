package engine

import (
	"slices"

	"github.com/farfield-ml/farfield/attention/internal/contract"
	"github.com/farfield-ml/farfield/internal/snapshot"
)

// kind names the states of the mechanism.
func (e *Engine[T]) kind() string {
	if e.Spec.IsPairwise() {
		return CacheKind
	}
	return SumsKind
}

// Identity identifies the states of the mechanism.
func (e *Engine[T]) Identity() Identity { return Identity{e.kind(), e.Spec.Name, e.Spec.Setting} }

// ParameterSum is the checksum of parameters and constants.
func (e *Engine[T]) ParameterSum() snapshot.ParameterSum {
	var sum snapshot.ParameterSum
	for _, p := range slices.Concat(e.ParamSet.All(), e.Constants().All()) {
		sum = snapshot.AddParameters(sum, p.Data)
	}
	return sum
}

// RestoreState reads what State.AppendBinary wrote. It returns an error if data is damaged or
// of another mechanism.
func (e *Engine[T]) RestoreState(data []byte) (contract.State[T], error) {
	if err := e.Checks().refuseFuture("snapshot"); err != nil {
		return nil, err
	}
	s, tokens, r, err := ReadSnapshot[T](data, e.Identity(), e.ParameterSum())
	if err != nil {
		return nil, err
	}
	if err := e.Checks().CheckHeads(s.H, s.Hkv, s.D); err != nil {
		return nil, err
	}
	var st contract.State[T]
	if e.Spec.IsPairwise() {
		st, err = restoreCache(e, s, tokens, r)
	} else {
		st, err = RestoreSums(e, s, tokens, r)
	}
	if err == nil {
		err = r.End()
	}
	if err != nil {
		return nil, err
	}
	return st, nil
}
