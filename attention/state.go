package attention

import "github.com/farfield-ml/farfield/tensor"

func newCache[T tensor.Float](e *engine[T], s Shape) State[T]   { return nil }
func (e *engine[T]) RestoreState(data []byte) (State[T], error) { return nil, nil }
func (s *sums[T]) AppendBinary(b []byte) ([]byte, error)        { return b, nil }
