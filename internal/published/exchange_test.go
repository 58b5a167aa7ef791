package published

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/model"
)

// A folder takes another function with its tokenizer, pooling and head, or refuses it by name.
func TestExchangedFolders(t *testing.T) {
	t.Parallel()
	compared := 0
	for name, text := range tinyConfigs {
		dir := t.TempDir()
		writeFolder(t, dir, text)
		plain, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		layers := []int{0}
		same, err := OpenWith(dir, Options{Exchange: &model.Exchange{Mechanism: "softmax", Layers: layers}})
		wide := map[string]string{"span": "1000"}
		window, wideErr := OpenWith(dir, Options{Exchange: &model.Exchange{Mechanism: "local", Set: wide, Layers: layers}})
		c := plain.Config()
		if refused := c.Kind == model.EncoderDecoder || c.RelativeBuckets > 0; refused || err != nil || wideErr != nil {
			if !refused || err == nil || wideErr == nil || !strings.Contains(err.Error(), "softmax") {
				t.Errorf("%s: errors are %v and %v", name, err, wideErr)
			}
			continue
		}
		want := outputs(t, plain)
		if c.LayerWindows == nil && !slices.Equal(outputs(t, same), want) {
			t.Errorf("%s: softmax gives other bits", name)
		}
		if c.LayerWindows == nil {
			compareNumbers(t, name, outputs(t, window), want, 1e-5)
			compared++
		}
		to := t.TempDir()
		if err := window.Save(to); err == nil || !strings.Contains(err.Error(), "layers.0.attn: has mechanism local") {
			t.Errorf("%s: Save of a function that the family has not: %v", name, err)
		}
		if err := Write(to, window.Model(), nil); err == nil || !strings.Contains(err.Error(), "layers.0.attn: has mechanism local") {
			t.Errorf("%s: Write of a function that the family has not: %v", name, err)
		}
		if list, _ := os.ReadDir(to); len(list) > 0 {
			t.Errorf("%s: %v is written", name, list)
		}
		if err := window.Model().Save(to); err != nil {
			t.Fatal(err)
		}
		if again, err := model.Load(to); err != nil || again.WeightSum() != window.Model().WeightSum() {
			t.Errorf("%s: the model of package model is not read back the same: %v", name, err)
		}
	}
	if compared < 10 {
		t.Errorf("%d folders were compared", compared)
	}
}

func TestExchangedFolderEmbeds(t *testing.T) {
	t.Parallel()
	texts := []string{"the cat sat on a mat.", "dogs ran in the rain!"}
	for _, x := range []*model.Exchange{nil, {Mechanism: "fastmax"}, {Mechanism: "performer"}, {Mechanism: "nystrom"}} {
		m, err := OpenWith("../../pretrained/testdata/tiny", Options{Exchange: x})
		if err != nil {
			t.Fatal(err)
		}
		vectors, err := m.Embed(context.Background(), texts)
		if err != nil || len(vectors) != 2 {
			t.Fatalf("%+v: %v", x, err)
		}
		again, err := OpenWith("../../pretrained/testdata/tiny", Options{Exchange: x})
		if err != nil {
			t.Fatal(err)
		}
		if other, err := again.Embed(context.Background(), texts); err != nil || !slices.Equal(other[0], vectors[0]) || !slices.Equal(other[1], vectors[1]) {
			t.Errorf("%+v: opened twice, vectors differ (%v)", x, err)
		}
	}
	if _, err := OpenWith("../../pretrained/testdata/tiny", Options{Exchange: &model.Exchange{Mechanism: "linformer"}}); err == nil || !strings.Contains(err.Error(), "E and F") {
		t.Errorf("numbers that need training: %v", err)
	}
}
