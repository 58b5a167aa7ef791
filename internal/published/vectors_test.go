package published

import (
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/safetensors"
)

// vectorCase is a case of testdata/vectors/cases.json: files of modules, beside testdata/tiny.
type vectorCase struct {
	Name, Prompt string
	Files        map[string]json.RawMessage
	Vectors      [][]float32
}

// readVectorCases returns texts and the vectors that sentence-transformers has of them.
func readVectorCases(t *testing.T) (texts []string, cases []vectorCase) {
	t.Helper()
	var all struct {
		Texts []string
		Cases []vectorCase
	}
	data, err := os.ReadFile("testdata/vectors/cases.json")
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all.Texts, all.Cases
}

// write writes the files of c and the weights of its linear layers, and returns the folder.
func (c *vectorCase) write(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../pretrained/testdata/tiny")); err != nil {
		t.Fatal(err)
	}
	for name, text := range c.Files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(name, "_Dense") {
			writeDense(t, filepath.Dir(path), text)
		}
	}
	return dir
}

// writeDense writes weights of a linear layer that are numbers of their places.
func writeDense(t *testing.T, dir string, config []byte) {
	t.Helper()
	c := struct {
		In       int  `json:"in_features"`
		Out      int  `json:"out_features"`
		Bias     bool `json:"bias"`
		Residual bool `json:"use_residual"`
	}{Bias: true}
	if err := json.Unmarshal(config, &c); err != nil {
		t.Fatal(err)
	}
	var list []*array.Array
	add := func(name string, number func(i int) int, shape ...int) {
		x := make([]float32, c.Out)
		if len(shape) == 2 {
			x = make([]float32, c.Out*c.In)
		}
		for i := range x {
			x[i] = float32(float64(number(i)) / 10)
		}
		a, err := array.New(name, x, shape...)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, a)
	}
	add("linear.weight", func(i int) int { return (i/c.In*7+i%c.In*3)%11 - 5 }, c.Out, c.In)
	if c.Bias {
		add("linear.bias", func(i int) int { return i%5 - 2 }, c.Out)
	}
	if c.Residual && c.In != c.Out {
		add("residual.weight", func(i int) int { return (i/c.In*5+i%c.In*2)%11 - 5 }, c.Out, c.In)
	}
	err := atomicfile.Write(filepath.Join(dir, weightsFile), func(w io.Writer) error { return safetensors.Write(w, list, nil) })
	if err != nil {
		t.Fatal(err)
	}
}

// TestVectorsAreThoseOfSentenceTransformers covers every pooling, joined poolings, linear layers and
// their activations, prompts that are left out, and vectors that the folder cuts.
func TestVectorsAreThoseOfSentenceTransformers(t *testing.T) {
	t.Parallel()
	texts, cases := readVectorCases(t)
	for _, c := range cases {
		m, err := Open(c.write(t))
		if err != nil {
			t.Fatal(err)
		}
		v, err := m.EmbedWith(t.Context(), texts, EmbedOptions{Prompt: &c.Prompt})
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		for i, want := range c.Vectors {
			if len(v.Rows[i]) != len(want) {
				t.Errorf("%s: text %d has %d numbers, want %d", c.Name, i, len(v.Rows[i]), len(want))
				continue
			}
			for j, x := range want {
				if d := math.Abs(float64(v.Rows[i][j] - x)); d > 2e-6 {
					t.Errorf("%s: text %d: element %d is %g, want %g", c.Name, i, j, v.Rows[i][j], x)
				}
			}
		}
	}
}

func TestShortenedVectorsHaveLengthOne(t *testing.T) {
	t.Parallel()
	m := openSentence(t, map[string]string{sentenceFile: `{"truncate_dim":2}`})
	whole, err := openSentence(t, nil).Embed(t.Context(), []string{"the cat"})
	if err != nil {
		t.Fatal(err)
	}
	v, err := m.EmbedWith(t.Context(), []string{"the cat"}, EmbedOptions{Dimensions: 3})
	if err != nil || len(v.Rows[0]) != 3 {
		t.Fatalf("%v, %v", v, err)
	}
	length := 0.
	for j, x := range v.Rows[0] {
		length += float64(x) * float64(x)
		if cos := float64(x) * float64(whole[0][0]) / float64(v.Rows[0][0]); math.Abs(cos-float64(whole[0][j])) > 1e-6 {
			t.Errorf("element %d is not in proportion", j)
		}
	}
	if math.Abs(length-1) > 1e-6 {
		t.Errorf("length² is %g", length)
	}
	for _, n := range []int{-1, 9} {
		if _, err := m.EmbedWith(t.Context(), []string{"the cat"}, EmbedOptions{Dimensions: n}); err == nil || !strings.Contains(err.Error(), "the vectors of the model have 8") {
			t.Errorf("%d: %v", n, err)
		}
	}
}

func TestLinearLayersThatDoNotFitAreRefused(t *testing.T) {
	t.Parallel()
	_, cases := readVectorCases(t)
	i := slices.IndexFunc(cases, func(c vectorCase) bool { return c.Name == "tanh" })
	const path = "2_Dense/config.json"
	for change, want := range map[string]string{
		`"in_features":8>"in_features":9`:                                     "in_features: is 9, the vector before has 8 numbers",
		`activation.Tanh>activation.Mish`:                                     "supported are Identity, Tanh",
		`torch.nn.modules.activation.Tanh>mine.Tanh`:                          "supported are Identity, Tanh",
		`"bias":true>"bias":true,"module_input_name":"token_embeddings"`:      "module_input_name",
		`"bias":true>"bias":true,"depth":2`:                                   "depth: is 2, but the field is unknown here",
		`"bias":true>"bias":true,"use_residual":true`:                         "residual.weight: is missing",
		`"in_features":8,"out_features":3>"in_features":8,"out_features":333`: "linear.weight: shape is [3 8], 2_Dense/config.json needs [333 8]",
	} {
		c := cases[i]
		dir := c.write(t)
		old, now, _ := strings.Cut(change, ">")
		text := strings.Replace(string(c.Files[path]), old, now, 1)
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		m, err := Open(dir)
		if err == nil {
			_, err = m.Embed(t.Context(), []string{"cat"})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", change, err, want)
		}
	}
}
