package published

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/safetensors"
)

// shard divides the weights of a folder into files by name, with an index. Without a file name a tensor
// stays out of the index, in the first file.
func shard(t *testing.T, dir string, fileOf func(name string) string, more ...*array.Array) {
	t.Helper()
	path := filepath.Join(dir, weightsFile)
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	const first = "model-00001-of-00003.safetensors"
	files, listed := map[string][]*array.Array{first: more}, map[string]string{}
	for _, name := range f.Names() {
		a, err := f.ReadArray(name)
		if err != nil {
			t.Fatal(err)
		}
		file := fileOf(name)
		if file != "" {
			listed[name] = file
		} else {
			file = first
		}
		files[file] = append(files[file], a)
	}
	f.Close()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for name, list := range files {
		err := atomicfile.Write(filepath.Join(dir, name), func(w io.Writer) error { return safetensors.Write(w, list, nil) })
		if err != nil {
			t.Fatal(err)
		}
	}
	index, err := json.Marshal(map[string]any{"weight_map": listed})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, indexFile, string(index))
}

// TestDetailsThatTransformersToleratesDoNotRefuseAFolder changes a folder, whose outputs stay, and
// which says what it has beside them.
func TestDetailsThatTransformersToleratesDoNotRefuseAFolder(t *testing.T) {
	t.Parallel()
	const first, second, third = "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors"
	numbers := func(name string, shape ...int) *array.Array {
		a, err := array.New(name, make([]float32, shape[0]*shape[1]), shape...)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	config := func(more string) func(dir string) {
		return func(dir string) {
			writeFile(t, dir, configFile, strings.Replace(tinyConfigs["llama"], `{`, `{`+more+`,`, 1))
		}
	}
	halves := func(name string) string {
		if strings.Contains(name, "mlp") {
			return second
		}
		return first
	}
	for _, c := range []struct {
		name   string
		change func(dir string)
		note   string // "": none
		err    string
	}{
		{"a tensor outside the index", func(dir string) { shard(t, dir, halves, numbers("model.extra.weight", 2, 3)) }, "does not list model.extra.weight", ""},
		{"a weight outside the index", func(dir string) {
			shard(t, dir, func(name string) string {
				if name == "model.norm.weight" {
					return ""
				}
				return halves(name)
			})
		}, "does not list model.norm.weight", ""},
		{"a tensor in another file than the index says", func(dir string) {
			shard(t, dir, halves, numbers("model.layers.0.mlp.up_proj.weight", 2, 3))
		}, "", ""},
		{"a missing shard that nothing needs", func(dir string) {
			shard(t, dir, halves)
			text, err := os.ReadFile(filepath.Join(dir, indexFile))
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, dir, indexFile, strings.Replace(string(text), `{"weight_map":{`, `{"weight_map":{"vision.weight":"`+third+`",`, 1))
		}, "lists " + third + ", which is missing", ""},
		{"a missing shard", func(dir string) {
			shard(t, dir, halves)
			if err := os.Remove(filepath.Join(dir, second)); err != nil {
				t.Fatal(err)
			}
		}, "", "the index names " + second + ", which is missing: no such file"},
		{"code of the folder", config(`"auto_map":{"AutoConfig":"c.Mine","AutoModel":"m.Mine"}`), `auto_map names code of the folder, "m.Mine", which is not executed`, ""},
		{"words about the model", config(`"name":"x","license":"mit","tags":["a"]`), "", ""},
		{"an unknown field", config(`"depth_rule":3`), "", "depth_rule: is 3, but the field is unknown here and may change the function; if it does not, --ignore-field passes over it, and export --ignore-field"},
	} {
		dir := t.TempDir()
		writeFolder(t, dir, tinyConfigs["llama"])
		_, want := logits(t, dir)
		c.change(dir)
		if c.err != "" {
			if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", c.name, err, c.err)
			}
			continue
		}
		m, got := logits(t, dir)
		if !slices.Equal(got, want) {
			t.Errorf("%s: other outputs", c.name)
		}
		if notes := strings.Join(m.Notes(), "; "); c.note == "" && notes != "" || !strings.Contains(notes, c.note) {
			t.Errorf("%s: notes %q, want %q", c.name, notes, c.note)
		}
	}
}

func TestIgnoredFieldsAreLeftOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFolder(t, dir, tinyConfigs["llama"])
	_, want := logits(t, dir)
	writeFile(t, dir, configFile, strings.Replace(tinyConfigs["llama"], `{`, `{"depth_rule":3,`, 1))
	m, err := OpenWith(dir, Options{IgnoreFields: []string{"depth_rule"}})
	if err != nil || len(m.Notes()) != 1 || m.Notes()[0] != "config.json: depth_rule is ignored, it is 3" {
		t.Fatalf("%v, notes %q", err, m.Notes())
	}
	saved := filepath.Join(t.TempDir(), "saved")
	if err := m.Save(saved); err != nil {
		t.Fatal(err)
	}
	if again, got := logits(t, saved); !slices.Equal(got, want) || len(again.Notes()) > 0 {
		t.Errorf("notes %q", again.Notes())
	}
	for name, want := range map[string]string{"model_type": "model_type: cannot be ignored", "width_rule": "there is no such field"} {
		if _, err := OpenWith(dir, Options{IgnoreFields: []string{name}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTextsWithATokenBeyondTheTableAreRefused has a tokenizer with one entry more than the model.
func TestTextsWithATokenBeyondTheTableAreRefused(t *testing.T) {
	t.Parallel()
	whole := openSentence(t, nil)
	size := whole.Config().Vocab
	added := fmt.Sprintf(`{"added_tokens_decoder":{"%d":{"content":"<image>","special":true}}}`, size)
	words, err := os.ReadFile("../../pretrained/testdata/tiny/vocab.txt")
	if err != nil {
		t.Fatal(err)
	}
	m := openSentence(t, map[string]string{"tokenizer_config.json": added, "vocab.txt": strings.TrimSuffix(string(words), "\n") + "\n<image>\n"})
	if notes := strings.Join(m.Notes(), ""); !strings.Contains(notes, fmt.Sprintf("the tokenizer has %d tokens, the model %d", size+1, size)) {
		t.Errorf("notes %q", notes)
	}
	got, err := m.Embed(t.Context(), []string{"the cat"})
	if err != nil {
		t.Fatal(err)
	}
	want, err := whole.Embed(t.Context(), []string{"the cat"})
	if err != nil || !slices.Equal(got[0], want[0]) {
		t.Errorf("%v: other vectors", err)
	}
	_, err = m.Embed(t.Context(), []string{"cat", "the <image> cat"})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf(`text 1: token "<image>": has the id %d, the model has %d tokens`, size, size)) {
		t.Errorf("error is %v", err)
	}
}
