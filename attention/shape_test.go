package attention

import "testing"

// A state needs its sizes, and the error names the one that is easily forgotten.
func TestStateShapesAreChecked(t *testing.T) {
	for want, s := range map[string]Shape{
		"": {B: 2, H: 4, Hkv: 2, D: 8, Dv: 8},
		"state: Hkv is 0, needs a divisor of H = 4":                           {B: 2, H: 4, D: 8, Dv: 8},
		"state: shape B=2 H=4 Hkv=3 D=8 Dv=8 is not possible":                 {B: 2, H: 4, Hkv: 3, D: 8, Dv: 8},
		"state: B·H is 1048576·2, at most 1048576 heads are kept":             {B: MaxHeads, H: 2, Hkv: 1, D: 8, Dv: 8},
		"state: rows of D = 8 and Dv = 268435457, at most 268435456 are kept": {B: 1, H: 1, Hkv: 1, D: 8, Dv: MaxRow + 1},
		"chunk: -1 is negative":                                               {B: 1, H: 1, Hkv: 1, D: 8, Dv: 8, Chunk: -1},
	} {
		got := ""
		if err := s.CheckState(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%+v: error %q, want %q", s, got, want)
		}
	}
}
