package published

import (
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

// changeTensors writes the tensors of a folder without those of names, and with others.
func changeTensors(t *testing.T, dir string, without []string, others ...*array.Array) {
	t.Helper()
	path := filepath.Join(dir, weightsFile)
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list := others
	for _, name := range f.Names() {
		if slices.Contains(without, name) {
			continue
		}
		a, err := f.ReadArray(name)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, a)
	}
	if err := atomicfile.Write(path, func(w io.Writer) error { return safetensors.Write(w, list, nil) }); err != nil {
		t.Fatal(err)
	}
}

// logits returns the logits of a folder for tinyInput.
func logits(t *testing.T, dir string) (*Model, []float32) {
	t.Helper()
	m, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	out, err := m.Forward(t.Context(), tinyInput(m))
	if err != nil {
		t.Fatal(err)
	}
	if out.Logits == nil {
		t.Fatalf("%s: has no logits", dir)
	}
	x, err := out.Logits.Float32()
	if err != nil {
		t.Fatal(err)
	}
	return m, x
}

// TestOutputsThatDifferFromTheEmbeddingAreTheFiles compares with a folder that does not tie them.
func TestOutputsThatDifferFromTheEmbeddingAreTheFiles(t *testing.T) {
	t.Parallel()
	for family, name := range map[string]string{"gpt2": "lm_head.weight", "gemma": "lm_head.weight", "qwen3": "lm_head.weight", "bert_mlm": "cls.predictions.decoder.weight", "modernbert": "decoder.weight"} {
		config := tinyConfigs[family]
		head := make([]float32, 20*8)
		for i := range head {
			head[i] = float32(i%13)/16 - 0.25
		}
		a, err := array.New(name, head, 20, 8)
		if err != nil {
			t.Fatal(err)
		}
		tied, untied := t.TempDir(), t.TempDir()
		writeFolder(t, tied, config)
		changeTensors(t, tied, nil, a)
		plain := strings.Replace(config, `,"tie_word_embeddings":true`, "", 1)
		writeFile(t, untied, configFile, strings.Replace(plain, `{"arch`, `{"tie_word_embeddings":false,"arch`, 1))
		copyFileOf(t, tied, untied, weightsFile)
		m, got := logits(t, tied)
		if notes := m.Notes(); len(notes) != 1 || !strings.HasPrefix(notes[0], name+": differs from the embedding") {
			t.Errorf("%s: notes %q", family, notes)
		}
		other, want := logits(t, untied)
		if !slices.Equal(got, want) || len(other.Notes()) > 0 {
			t.Errorf("%s: the outputs are not the file's", family)
		}
		saved := filepath.Join(t.TempDir(), "saved")
		if err := m.Save(saved); err != nil {
			t.Fatal(err)
		}
		if again, got := logits(t, saved); !slices.Equal(got, want) || len(again.Notes()) > 0 {
			t.Errorf("%s: the outputs of the saved folder differ, notes %q", family, again.Notes())
		}
		described := t.TempDir()
		if err := CopyDescription(described, tied, nil); err != nil {
			t.Fatal(err)
		}
		if err := WriteLike(filepath.Join(t.TempDir(), "like"), described, m.Model()); err != nil {
			t.Errorf("%s: %v", family, err)
		}
	}
}

// copyFileOf copies a file between folders.
func copyFileOf(t *testing.T, from, to, name string) {
	t.Helper()
	if err := copyFile(from, to, name); err != nil {
		t.Fatal(err)
	}
}

func TestCopiesOfTheEmbeddingStayTied(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFolder(t, dir, tinyConfigs["gemma"])
	_, want := logits(t, dir)
	f, err := safetensors.Open(filepath.Join(dir, weightsFile))
	if err != nil {
		t.Fatal(err)
	}
	a, err := f.ReadArray("model.embed_tokens.weight")
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	a.Name = "lm_head.weight"
	changeTensors(t, dir, nil, a)
	if m, got := logits(t, dir); !slices.Equal(got, want) || len(m.Notes()) > 0 || !m.Config().Tied {
		t.Errorf("notes %q, tied %v", m.Notes(), m.Config().Tied)
	}
}

func TestAHeadWithoutArchitecturesIsRead(t *testing.T) {
	t.Parallel()
	for _, family := range []string{"llama", "gpt_neox", "phi", "bert_mlm", "xlm-roberta", "mpnet"} {
		dir := t.TempDir()
		config := tinyConfigs[family]
		writeFolder(t, dir, config)
		named, want := logits(t, dir)
		from := strings.Index(config, `"model_type"`)
		for _, start := range []string{"{", `{"architectures":null,`, `{"architectures":[],`} {
			writeFile(t, dir, configFile, start+config[from:])
			m, got := logits(t, dir)
			if !slices.Equal(got, want) || m.plan.head != named.plan.head || len(m.Notes()) != 1 {
				t.Errorf("%s: the head is %d, want %d, notes %q", family, m.plan.head, named.plan.head, m.Notes())
			}
		}
	}
}

func TestHeadsOfOtherTasksAreTold(t *testing.T) {
	t.Parallel()
	classifier := func(name string) []*array.Array {
		w, err := array.New(name+".weight", make([]float32, 2*8), 2, 8)
		if err != nil {
			t.Fatal(err)
		}
		b, err := array.New(name+".bias", make([]float32, 2), 2)
		if err != nil {
			t.Fatal(err)
		}
		return []*array.Array{w, b}
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../pretrained/testdata/tiny")); err != nil {
		t.Fatal(err)
	}
	changeTensors(t, dir, nil, classifier("classifier")...)
	m, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	const names = "classifier.bias, classifier.weight"
	if notes := m.Notes(); len(notes) != 1 || !strings.Contains(notes[0], names) {
		t.Errorf("notes %q", notes)
	}
	if err := m.CheckClasses(); err == nil || !strings.Contains(err.Error(), names) {
		t.Errorf("a head that architectures does not name: %v", err)
	}
	changeTensors(t, dir, []string{"classifier.weight", "classifier.bias"}, classifier("qa_outputs")...)
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "qa_outputs.bias: is of a head that answers questions") {
		t.Error(err)
	}
}
