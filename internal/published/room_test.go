package published

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/tensor"
)

// A limit that special tokens and the prompt use up would give all texts one vector.
func TestCutTextsKeepATokenOfTheirOwn(t *testing.T) {
	t.Parallel()
	const prompts = `{"prompts":{"query":"the cat "},"default_prompt_name":"query"}`
	texts := []string{"cat sat on the mat", "mat on the cat sat"}
	for _, c := range []struct {
		name string
		max  int
		want string // in the error; "": two vectors that differ
	}{
		{"", 1, "max tokens: 1 leave no room beside special tokens"},
		{"", 2, "max tokens: 2 leave no room beside special tokens"},
		{"", 3, ""},
		{prompts, 4, `max tokens: 4 leave no room beside special tokens and the prompt "the cat "`},
		{prompts, 5, ""},
	} {
		files := map[string]string{}
		if c.name != "" {
			files["config_sentence_transformers.json"] = c.name
		}
		v, err := openSentence(t, files).EmbedWith(t.Context(), texts, EmbedOptions{MaxTokens: c.max})
		switch {
		case c.want != "":
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%d tokens: error is %v, needs %q", c.max, err, c.want)
			}
		case err != nil:
			t.Errorf("%d tokens: %v", c.max, err)
		case slices.Equal(v.Rows[0], v.Rows[1]):
			t.Errorf("%d tokens: two texts have one vector", c.max)
		}
	}
}

// doubled is another function than the one that it stands for.
type doubled struct {
	attention.Mechanism
}

func (d doubled) Forward(out tensor.Heads, c *attention.Call, keep *attention.Saved) error {
	err := d.Mechanism.Forward(out, c, keep)
	for i := range out.B * out.H {
		for j := range out.N {
			row := out.Head(i/out.H, i%out.H).Row(j)
			for k := range row {
				row[k] *= 2
			}
		}
	}
	return err
}

func TestModelsWithOtherMechanismsAreNotWritten(t *testing.T) {
	t.Parallel()
	m := openTiny(t, "llama")
	restore := model.WrapMechanisms(m.Model(), func(_ string, of attention.Mechanism) attention.Mechanism { return doubled{of} })
	for name, save := range map[string]func(dir string) error{
		"Save":  m.Save,
		"Write": func(dir string) error { return Write(dir, m.Model(), nil) },
	} {
		dir := filepath.Join(t.TempDir(), "m")
		if err := save(dir); err == nil || !strings.Contains(err.Error(), "layers.0.attn: mechanism softmax") {
			t.Errorf("%s: error is %v, needs the layer and the mechanism", name, err)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s: has made a folder", name)
		}
	}
	restore()
	if err := m.Save(filepath.Join(t.TempDir(), "m")); err != nil {
		t.Error(err)
	}
}
