package published

import (
	"slices"
	"testing"
)

func TestShortInputsKeepTheirBitsWithPackedWeights(t *testing.T) {
	t.Parallel()
	for name := range tinyConfigs {
		m := openTiny(t, name)
		want := outputs(t, m)
		if m.passes.isFrozen.Load() {
			t.Errorf("%s: the first pass packs the weights", name)
		}
		if got := outputs(t, m); !slices.Equal(got, want) || !m.passes.isFrozen.Load() {
			t.Errorf("%s: packed weights %v, or outputs differ", name, m.passes.isFrozen.Load())
		}
		p := m.Model().Params().All()[0]
		first := p.Data[0]
		p.Data[0]++
		if outputs(t, m); m.passes.isFrozen.Load() {
			t.Errorf("%s: weights are packed that a caller may change", name)
		}
		p.Data[0] = first
		if !slices.Equal(outputs(t, m), want) {
			t.Errorf("%s: outputs differ after the weights are back", name)
		}
	}
}
