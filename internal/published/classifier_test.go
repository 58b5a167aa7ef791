package published

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

// The head that every family lacks or has, by the configurations of tinyConfigs.
var lackingHeads = map[string]string{
	"bert": "head.bias head.weight", "bert_mlm": "head.bias head.weight head_hidden.bias head_hidden.weight",
	"roberta": "head.bias head.weight head_hidden.bias head_hidden.weight", "xlm-roberta": "head.bias head.weight head_hidden.bias head_hidden.weight",
	"distilbert": "head.bias head.weight", "mpnet": "head.bias head.weight head_hidden.bias head_hidden.weight", "modernbert": "head.bias head.weight",
	"gpt2": "head.weight", "gpt_neox": "head.weight", "llama": "head.weight", "mistral": "head.weight", "qwen2": "head.weight",
	"qwen3": "head.weight", "gemma": "head.weight", "phi": "head.weight", "phi3": "head.weight", "gemma2": "head.weight", "gemma3_text": "head.weight", "vit": "head.bias head.weight",
}

func TestFoldersOpenAsClassifiersOfTheirFamily(t *testing.T) {
	t.Parallel()
	classes := []string{"no", "perhaps", "yes, \"or\" so"}
	for name, config := range tinyConfigs {
		dir := t.TempDir()
		writeFolder(t, dir, config)
		c, err := OpenClassifier(dir, classes)
		if name == "bart" {
			if err == nil || !strings.Contains(err.Error(), "bart has no head for classes") {
				t.Errorf("%s: error is %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		lacking := c.Lacking()
		slices.Sort(lacking)
		if got := strings.Join(lacking, " "); got != lackingHeads[name] {
			t.Errorf("%s: lacks %s, want %s", name, got, lackingHeads[name])
		}
		if got := c.Model().Config().Outputs; got != len(classes) {
			t.Errorf("%s: %d outputs, want %d", name, got, len(classes))
		}
		if name == "vit" {
			continue
		}
		// Shorter samples and other weights, as after training.
		m, err := model.New(trainedConfig(c.Model().Config()), rng.New(3))
		if err != nil {
			t.Fatal(err)
		}
		description, out := filepath.Join(dir, "description"), filepath.Join(dir, "out")
		if err := CopyDescription(description, dir, classes); err != nil {
			t.Fatal(err)
		}
		if err := WriteLike(out, description, m); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		checkSameLogits(t, name, out, m)
		// The written folder keeps outputs for the same classes, and for no others.
		for want, other := range map[string][]string{"": classes, lackingOutputs(lackingHeads[name]): {"a", "b", "c"}} {
			c, err := OpenClassifier(out, other)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			lacking := c.Lacking()
			slices.Sort(lacking)
			if got := strings.Join(lacking, " "); got != want {
				t.Errorf("%s: lacks %q for %v, want %q", name, got, other, want)
			}
		}
		other := m.Config()
		other.Pool = model.PoolMean
		if name == "modernbert" {
			other.NormEps = 1
		}
		if m, err = model.New(other, rng.New(3)); err != nil {
			t.Fatal(err)
		}
		if err := WriteLike(filepath.Join(dir, "none"), description, m); err == nil || !strings.Contains(err.Error(), "no longer of its family") {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

// lackingOutputs returns the weights of the outputs in a list.
func lackingOutputs(list string) string {
	names := strings.Fields(list)
	return strings.Join(slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, "head_") }), " ")
}

// trainedConfig returns the configuration of a model for shorter samples.
func trainedConfig(c model.Config) model.Config {
	if c.Positions == model.Learned && c.PositionTable == 0 {
		c.PositionTable = c.Context
	}
	c.Context = 6
	return c
}

// checkSameLogits compares the logits of a folder and of a model.
func checkSameLogits(t *testing.T, name, dir string, m *model.Model) {
	t.Helper()
	got, err := Open(dir)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	in := tinyInput(got)
	x := outputs(t, got)
	y := make([]float32, len(x))
	if err := m.Logits(t.Context(), &model.Batch{B: 2, N: 6, Tokens: in.IDs, Lens: []int64{6, 4}}, y); err != nil {
		t.Fatal(err)
	}
	for i := range x {
		if d := x[i] - y[i]; d > 1e-5 || d < -1e-5 {
			t.Errorf("%s: logit %d is %v, want %v", name, i, x[i], y[i])
			return
		}
	}
}
