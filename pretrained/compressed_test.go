package pretrained

import (
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/nn"
)

// A folder that is opened in fewer bits has the bits of one that is opened in 32 and compressed.
func TestOpenInFewerBitsIsCompress(t *testing.T) {
	for name, config := range tinyConfigs {
		dir := t.TempDir()
		writeFolder(t, dir, config)
		for _, p := range []nn.Precision{nn.BFloat16, nn.Int8} {
			m, err := OpenWith(dir, Options{Precision: p})
			if err != nil {
				t.Fatalf("%s %v: %v", name, p, err)
			}
			want, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := want.Model().Compress(p); err != nil {
				t.Fatal(err)
			}
			if got, want := m.Model().WeightSum(), want.Model().WeightSum(); got != want {
				t.Errorf("%s %v: weights are %s, want %s", name, p, got, want)
			}
			if !slices.Equal(outputs(t, m), outputs(t, want)) {
				t.Errorf("%s %v: outputs differ", name, p)
			}
		}
	}
}
