package exchanged

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/safetensors"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

// tiny returns a decoder of two layers.
func tiny(t testing.TB) *model.Model {
	t.Helper()
	m, err := model.New(model.Config{Kind: model.Decoder, Vocab: 11, Context: 8, Layers: 2, Width: 8, Heads: 2, Mechanism: "softmax", Positions: model.Rotary}, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// written returns an exchanged model of m in a folder.
func written(t testing.TB, m *model.Model) string {
	t.Helper()
	root := t.TempDir()
	trained, dir := filepath.Join(root, "trained"), filepath.Join(root, "exchanged")
	if err := m.Save(trained); err != nil {
		t.Fatal(err)
	}
	data := make([]float32, 2*3*4)
	for i := range data {
		data[i] = float32(i)
	}
	a, err := array.New("layers.1.attn.codebook", data, 2, 3, 4)
	if err != nil {
		t.Fatal(err)
	}
	manifest := Manifest{Layers: []model.LayerMechanism{{}, {Mechanism: "multipole", Order: 1, Set: map[string]string{"cells": "3"}}},
		Calibration: Calibration{Tokens: 7, Measure: "nats", Distances: map[string][]float64{"layers.1.attn": {0.5, 2}}}}
	if err := Write(dir, trained, manifest, []*array.Array{a}, map[string][]byte{"page.md": []byte("a page")}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestFolderIsWhatWasWritten(t *testing.T) {
	m := tiny(t)
	dir := written(t, m)
	f, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !Is(dir) || Resolve(dir) != f.Model() || Is(f.Model()) || f.Calibration.Distances["layers.1.attn"][1] != 2 {
		t.Errorf("the folder is %+v", f)
	}
	if _, err := os.Stat(filepath.Join(dir, "config.json")); err == nil {
		t.Error("the folder has a config.json of its own")
	}
	inner, err := model.Load(f.Model())
	if err != nil || inner.WeightSum() != m.WeightSum() {
		t.Fatalf("the trained model has changed: %v", err)
	}
	y, err := f.Apply(inner)
	if err != nil {
		t.Fatal(err)
	}
	c, err := f.Configure(inner.Config())
	if err != nil || !reflect.DeepEqual(c, y.Config()) {
		t.Errorf("configured %+v, applied %+v, error %v", c, y.Config(), err)
	}
	z, err := model.NewUndrawn(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Fill(z); err != nil {
		t.Fatal(err)
	}
	for _, x := range []*model.Model{y, z} {
		if p, err := x.Constants().Get("layers.1.attn.codebook"); err != nil || p.Data[23] != 23 {
			t.Errorf("the codebook is not that of the folder: %v", err)
		}
	}
	if f, err := Open(f.Model()); f != nil || err != nil {
		t.Errorf("a trained model opens as an exchanged one: %v", err)
	}
}

// Numbers of another shape are refused, even if they are as many.
func TestNumbersHaveTheShapeOfTheFunction(t *testing.T) {
	m := tiny(t)
	f, err := Open(written(t, m))
	if err != nil {
		t.Fatal(err)
	}
	y, err := f.Apply(m)
	if err != nil {
		t.Fatal(err)
	}
	const name = "layers.1.attn.codebook"
	f.numbers[name] = numbers{[]int{3, 2, 4}, f.numbers[name].data}
	const want = name + ": has the shape [3 2 4], the model's function has [2 3 4]"
	if err := f.Fill(y); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Fill: error is %v, want %q", err, want)
	}
	if _, err := f.Apply(m); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Apply: error is %v, want %q", err, want)
	}
}

func TestWriteNeverReplaces(t *testing.T) {
	dir := written(t, tiny(t))
	before, _ := os.ReadFile(filepath.Join(dir, ManifestFile))
	if err := Write(dir, filepath.Join(dir, ModelFolder), Manifest{}, nil, nil); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("error is %v", err)
	}
	if after, _ := os.ReadFile(filepath.Join(dir, ManifestFile)); !bytes.Equal(before, after) {
		t.Error("the manifest has changed")
	}
	to := filepath.Join(t.TempDir(), "new")
	if err := Write(to, filepath.Join(dir, "missing"), Manifest{}, nil, nil); err == nil {
		t.Error("a missing model is written")
	}
	if list, _ := os.ReadDir(filepath.Dir(to)); len(list) > 0 {
		t.Errorf("%v is left", list)
	}
}

func TestDamagedFoldersAreRefused(t *testing.T) {
	for _, x := range []struct{ file, from, to, want string }{
		{ManifestFile, `"version":1`, `"version":2`, "version: is 2"},
		{ManifestFile, `"cells":"3"`, `"cells":"4"`, "sha256"},
		{ManifestFile, `"version":1`, `"version":1,"more":2`, "more"},
		{NumbersFile, "codebook", "codebrok", "damaged"},
		{filepath.Join(ModelFolder, "config.json"), `"vocab": 11`, `"vocab": 12`, "another model's"},
		{filepath.Join(ModelFolder, "config.json"), `"vocab": 11`, `"vocab": 111`, "another model's"},
	} {
		dir := written(t, tiny(t))
		path := filepath.Join(dir, x.file)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if x.file == ManifestFile {
			var compact bytes.Buffer
			if err := json.Compact(&compact, data); err != nil {
				t.Fatal(err)
			}
			data = compact.Bytes()
		}
		changed := bytes.Replace(data, []byte(x.from), []byte(x.to), 1)
		if bytes.Equal(changed, data) {
			t.Fatalf("%s has no %s: %s", x.file, x.from, data)
		}
		if err := os.WriteFile(path, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s with %s: error is %v, want %q", x.file, x.to, err, x.want)
		}
	}
}

func FuzzManifest(f *testing.F) {
	dir := written(f, tiny(f))
	text, err := os.ReadFile(filepath.Join(dir, ManifestFile))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"format":"farfield exchange","version":1,"files":{"../x":1}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parse(text)
		if err != nil {
			return
		}
		if sum, err := m.sum(); err != nil || sum != m.Sum {
			t.Errorf("a manifest is read whose checksum is wrong")
		}
	})
}

func FuzzNumbers(f *testing.F) {
	a, _ := array.New("layers.0.attn.codebook", []float32{1, 2, 3, 4}, 1, 2, 2)
	var b bytes.Buffer
	if err := safetensors.Write(&b, []*array.Array{a}, nil); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := decodeNumbers(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		for name, x := range list {
			for _, v := range x.data {
				if v-v != 0 {
					t.Errorf("%s has %v", name, v)
				}
			}
		}
	})
}
