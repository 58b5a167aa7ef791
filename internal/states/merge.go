package states

import (
	"fmt"

	"github.com/farfield-ml/farfield/attention"
)

// Fits returns an error if a state of mechanism from and shape s cannot be used where mechanism
// id and shape want are needed. The error begins with what and names the field. Learned
// parameters are not compared.
func (id Identity) Fits(what string, want *attention.Shape, from Identity, s *attention.Shape) error {
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
