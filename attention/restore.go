package attention

import (
	"slices"

	"github.com/farfield-ml/farfield/internal/snapshot"
)

// kind names the states of the mechanism.
func (e *engine[T]) kind() string {
	if e.spec.IsPairwise() {
		return cacheKind
	}
	return sumsKind
}

func (e *engine[T]) identity() Identity { return Identity{e.kind(), e.spec.Name, e.spec.Setting} }

func (e *engine[T]) parameterSum() snapshot.ParameterSum {
	var sum snapshot.ParameterSum
	for _, p := range slices.Concat(e.params.All(), e.Constants().All()) {
		sum = snapshot.AddParameters(sum, p.Data)
	}
	return sum
}

// RestoreState reads what State.AppendBinary wrote.
func (e *engine[T]) RestoreState(data []byte) (State[T], error) {
	if err := e.checks().refuseFuture("snapshot"); err != nil {
		return nil, err
	}
	s, tokens, r, err := ReadSnapshot[T](data, e.identity(), e.parameterSum())
	if err != nil {
		return nil, err
	}
	if err := e.checks().checkHeads(s.H, s.Hkv, s.D); err != nil {
		return nil, err
	}
	var st State[T]
	if e.spec.IsPairwise() {
		st, err = restoreCache(e, s, tokens, r)
	} else {
		st, err = restoreSums(e, s, tokens, r)
	}
	if err == nil {
		err = r.End()
	}
	if err != nil {
		return nil, err
	}
	return st, nil
}
