package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/array"
	"github.com/farfield-ml/farfield/safetensors"
)

// tinyModel is a BERT of random weights in the Hugging Face layout.
const tinyModel = "../../pretrained/testdata/tiny"

// writeIDs writes a file with the arrays input_ids [1,4] and do [1,4,8].
func writeIDs(t *testing.T) string {
	t.Helper()
	ids, err := array.New("input_ids", []int64{2, 5, 6, 3}, 1, 4)
	if err != nil {
		t.Fatal(err)
	}
	do, err := array.New("do", make([]float32, 4*8), 1, 4, 8)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "in.npz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := array.WriteNPZ(f, []*array.Array{ids, do}); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestForwardWritesTheNamesOfTransformers(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.npz")
	works(t, "forward", "--model", tinyModel, writeIDs(t), out)
	z, err := array.OpenNPZ(out)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for _, name := range []string{"hidden", "last_hidden_state"} {
		if !slices.Contains(z.Names(), name) {
			t.Errorf("%v lack %s", z.Names(), name)
		}
	}
}

func TestExportedFolderHasTheOutputsAndTheBytesOfTheModel(t *testing.T) {
	in, dir := writeIDs(t), filepath.Join(t.TempDir(), "copy")
	works(t, "export", "--model", tinyModel, "--out", dir)
	before, after := filepath.Join(t.TempDir(), "a.npz"), filepath.Join(t.TempDir(), "b.npz")
	works(t, "forward", "--model", tinyModel, in, before)
	works(t, "forward", "--model", dir, in, after)
	for _, pair := range [][2]string{{before, after}, {filepath.Join(tinyModel, "model.safetensors"), filepath.Join(dir, "model.safetensors")}} {
		a, err := os.ReadFile(pair[0])
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(pair[1])
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(a, b) {
			t.Errorf("%s and %s differ", pair[0], pair[1])
		}
	}
	if status, _, errs := command(t, "export", "--model", tinyModel, "--out", dir); status != 2 || !strings.Contains(errs, "--out") {
		t.Errorf("a folder with files: status %d: %s", status, errs)
	}
}

func TestEmbedReadsAPublishedFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lines.txt")
	if err := os.WriteFile(path, []byte("one text\nanother text\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	out := works(t, "embed", "--model", tinyModel, path)
	if n := strings.Count(out, `"vector":[`); n != 2 {
		t.Errorf("%d vectors of 2 texts: %s", n, out)
	}
}

// writeClassifier writes tinyModel with a head of three classes, and returns its folder.
func writeClassifier(t *testing.T, architecture string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(tinyModel)); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	var list []*array.Array
	for _, name := range f.Names() {
		a, err := f.ReadArray(name)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, a)
	}
	f.Close()
	for i, shape := range [][]int{{3, 8}, {3}} {
		a := normal(t, []string{"classifier.weight", "classifier.bias"}[i], uint64(5+i), shape...)
		list = append(list, a)
	}
	path := filepath.Join(dir, "model.safetensors")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := safetensors.Write(out, list, nil); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(config), `"BertModel"]`, `"`+architecture+`"],"id2label":{"0":"bad","1":"good","2":"fair"}`, 1)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestPredictReadsPublishedFolders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lines.txt")
	if err := os.WriteFile(path, []byte("the cat sat\n\nthe dog ran\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	dir := writeClassifier(t, "BertForSequenceClassification")
	out := works(t, "predict", "--model", dir, path)
	lines := strings.Split(out, "\n")
	if len(lines) != 4 || lines[1] != "\t\t" || !strings.HasSuffix(lines[0], "\tthe cat sat") {
		t.Errorf("%q", out)
	}
	if label, _, _ := strings.Cut(lines[0], "\t"); !slices.Contains([]string{"bad", "good", "fair"}, label) {
		t.Errorf("label %q is no name of id2label", label)
	}
	if out = works(t, "predict", "--model", dir, "--json", path); !strings.Contains(out, `"probabilities":{"bad":`) {
		t.Error(out)
	}
	out = works(t, "predict", "--model", writeClassifier(t, "BertForTokenClassification"), "--json", path)
	if !strings.Contains(out, `"offsets":[[0,3],[4,7],[8,11]]`) || strings.Count(out, `"labels":[`) != 2 {
		t.Error(out)
	}
	refuses(t, "the bert has no head of classes", "predict", "--model", tinyModel, path)
}

func TestMapsReadAPublishedFolder(t *testing.T) {
	out := works(t, "maps", "--model", tinyModel, "--text", "the cat sat", "--layers", "1", "--json", "--out", filepath.Join(t.TempDir(), "maps.html"))
	if strings.Count(out, `"entropy"`) != 2 || !strings.Contains(out, `"layer": "layers.1.attn"`) {
		t.Error(out)
	}
	refuses(t, "has no task", "maps", "--model", tinyModel, "--sample", "0")
}
