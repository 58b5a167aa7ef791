package inference

import (
	"math"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/token"
)

// publishedModel is a BERT of random weights in the Hugging Face layout.
const publishedModel = "../../pretrained/testdata/tiny"

func TestMapsOfALayerHaveRowsOfSumOne(t *testing.T) {
	published, err := Open(publishedModel, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*Model{saveTinyModel(t, 1, token.NewByteVocabulary()), published} {
		ids := []int32{2, 5, 6, 7, 3}
		for layer := range m.AttentionNames() {
			maps, err := m.MapLayer(t.Context(), ids, layer)
			if err != nil {
				t.Fatal(err)
			}
			if maps.Layers != m.Config().Layers || maps.Heads != m.Config().Heads || len(maps.Weights) != maps.Heads || maps.Window != 64 {
				t.Errorf("%s: %d layers, %d heads, window %d", maps.Name, maps.Layers, maps.Heads, maps.Window)
			}
			for h, w := range maps.Weights {
				for i := range ids {
					var sum float64
					for j, x := range w[i*5:][:5] {
						sum += float64(x)
						if m.Config().IsCausal() && j > i && x != 0 {
							t.Errorf("%s, head %d: query %d sees key %d", maps.Name, h, i, j)
						}
					}
					if math.Abs(sum-1) > 1e-6 {
						t.Errorf("%s, head %d: row %d adds up to %g", maps.Name, h, i, sum)
					}
				}
			}
		}
		for want, f := range map[string]func() error{
			"layer: is 7, the model has": func() error { _, err := m.MapLayer(t.Context(), ids, 7); return err },
			"ids: are empty":             func() error { _, err := m.MapLayer(t.Context(), nil, 0); return err },
			"ids: are 60000, and":        func() error { _, err := m.MapLayer(t.Context(), make([]int32, 60000), 0); return err },
		} {
			if err := f(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
}
