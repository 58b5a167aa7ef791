package attention

import "github.com/farfield-ml/farfield/tensor"

// statePlace is the place of batch row b of a call to a state.
func statePlace[T tensor.Float](c *Call[T], b int) dropoutCoords {
	if p := sourceOf(c.Drop); p != nil {
		return *p
	}
	return dropoutCoords{row: b, start: c.Drop.Start, b: b, n: c.Q.N, m: c.K.N}
}

// sliceDrop returns d for tokens of sequence s of c, from query q0 and key k0 on,
// which stand at position start and those that follow.
func sliceDrop(d *Drop, s *Sequence, q0, k0, n, m, start int) *Drop {
	if !d.IsActive() {
		return nil
	}
	return relocate(d, dropoutCoords{s.Index, d.Start + int64(start), s.Batch, s.Q0 + q0, s.K0 + k0, n, m})
}

// checkDropout returns an error if the dropout of c does not fit heads of shape s.
func (c *Call[T]) checkDropout(s *Shape) error {
	return checkDrop(c.Drop, s.B*s.H*s.N, s.B*s.Hkv*s.M, s.D)
}
