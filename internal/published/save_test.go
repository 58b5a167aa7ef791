package published

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// openTiny opens a folder of a configuration of tinyConfigs with random weights.
func openTiny(t *testing.T, name string) *Model {
	t.Helper()
	dir := t.TempDir()
	writeFolder(t, dir, tinyConfigs[name])
	m, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// outputs returns the logits or the last rows for tinyInput.
func outputs(t *testing.T, m *Model) []float32 {
	t.Helper()
	return outputsOf(t, m, tinyInput(m))
}

// outputsOf returns the logits or the last rows for an input.
func outputsOf(t *testing.T, m *Model, in *Input) []float32 {
	t.Helper()
	out, err := m.Forward(context.Background(), in)
	if err != nil {
		t.Fatal(err)
	}
	a := out.Logits
	if a == nil {
		a = out.LastHidden
	}
	x, err := a.Float32()
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestSaveCopiesUnchangedWeights(t *testing.T) {
	t.Parallel()
	for name := range tinyConfigs {
		t.Run(name, func(t *testing.T) {
			m := openTiny(t, name)
			to := t.TempDir()
			if err := m.Save(to); err != nil {
				t.Fatal(err)
			}
			for _, file := range []string{configFile, weightsFile} {
				a, _ := os.ReadFile(filepath.Join(m.dir, file))
				b, err := os.ReadFile(filepath.Join(to, file))
				if err != nil || !bytes.Equal(a, b) {
					t.Errorf("%s: the copy differs (%v)", file, err)
				}
			}
		})
	}
}

func TestSaveKeepsOutputsOfChangedWeights(t *testing.T) {
	t.Parallel()
	for name := range tinyConfigs {
		t.Run(name, func(t *testing.T) {
			m := openTiny(t, name)
			before := outputs(t, m)
			for _, p := range m.Model().Params().All() {
				for i := range p.Data {
					p.Data[i] *= 1.25
				}
			}
			want := outputs(t, m)
			if slices.Equal(before, want) {
				t.Error("weights changed, outputs did not")
			}
			for _, to := range []string{t.TempDir(), m.dir} {
				if err := m.Save(to); err != nil {
					t.Fatal(err)
				}
				again, err := Open(to)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(outputs(t, again), want) {
					t.Errorf("%s: outputs differ", to)
				}
				if !slices.Equal(slices.Sorted(slices.Values(again.Names())), slices.Sorted(slices.Values(m.Names()))) {
					t.Errorf("names are %q, want %q", again.Names(), m.Names())
				}
			}
		})
	}
}

func TestForwardRunsConcurrently(t *testing.T) {
	t.Parallel()
	m := openTiny(t, "bert")
	want := outputs(t, m)
	var g sync.WaitGroup
	for range 8 {
		g.Go(func() {
			for range 4 {
				if !slices.Equal(outputs(t, m), want) {
					t.Error("outputs differ")
				}
			}
		})
	}
	g.Go(func() {
		in := tinyInput(m)
		for range 4 {
			if _, err := m.Gradients(context.Background(), in, make([]float32, len(want))); err != nil {
				t.Error(err)
			}
		}
	})
	g.Wait()
}

func TestForwardEndsWithItsContext(t *testing.T) {
	t.Parallel()
	m := openTiny(t, "llama")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := m.Forward(ctx, tinyInput(m)); err != context.Canceled {
		t.Errorf("forward: %v", err)
	}
	if _, err := m.Gradients(ctx, tinyInput(m), make([]float32, 12*20)); err != context.Canceled {
		t.Errorf("gradients: %v", err)
	}
}

func TestMaskedRowsAreAsAlone(t *testing.T) {
	t.Parallel()
	for name := range tinyConfigs {
		m := openTiny(t, name)
		in := tinyInput(m)
		if in.Mask == nil || name == "bart" || m.Config().Pool != "" {
			continue
		}
		all := outputs(t, m)
		w := len(all) / 12
		short := &Input{B: 1, N: 4, IDs: in.IDs[6:10]}
		out, err := m.Forward(context.Background(), short)
		if err != nil {
			t.Fatal(err)
		}
		a := out.Logits
		if a == nil {
			a = out.LastHidden
		}
		x, err := a.Float32()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(x, all[6*w:10*w]) {
			t.Errorf("%s: padded rows differ", name)
		}
	}
}

func TestFoldersOfOtherModelsAreRefused(t *testing.T) {
	t.Parallel()
	m, description := openTiny(t, "bert"), t.TempDir()
	if err := CopyDescription(description, m.dir, nil); err != nil {
		t.Fatal(err)
	}
	for name, save := range map[string]func(dir string) error{
		"Save":      m.Save,
		"Write":     func(dir string) error { return Write(dir, m.Model(), nil) },
		"WriteLike": func(dir string) error { return WriteLike(dir, description, m.Model()) },
	} {
		for _, other := range []string{indexFile, "tokenizer.json", "added_tokens.json", "modules.json"} {
			dir := t.TempDir()
			for range 2 { // the second replaces the first
				if err := save(dir); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, other), []byte("{}"), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := save(dir); err == nil || !strings.Contains(err.Error(), dir+": has "+other) {
				t.Errorf("%s beside %s: %v", name, other, err)
			}
		}
	}
}

func TestShardsAreNotSavedBesideOtherWeights(t *testing.T) {
	t.Parallel()
	m := openTiny(t, "bert")
	const shard = "model-00001-of-00001.safetensors"
	listed := map[string]string{}
	for _, x := range m.stored {
		listed[x.name] = shard
	}
	index, err := json.Marshal(map[string]any{"weight_map": listed})
	if err == nil {
		err = errors.Join(os.Rename(filepath.Join(m.dir, weightsFile), filepath.Join(m.dir, shard)), os.WriteFile(filepath.Join(m.dir, indexFile), index, 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	writeFolder(t, to, tinyConfigs["bert_mlm"])
	if err := m.Save(to); err == nil || !strings.Contains(err.Error(), to+": has "+weightsFile) {
		t.Errorf("error is %v", err)
	}
	m.Model().Params().All()[0].Data[0]++
	if err := m.Save(to); err != nil {
		t.Errorf("one file replaces the other: %v", err)
	}
}

func TestSaveRefusesFoldersWhoseTensorsChangedShape(t *testing.T) {
	t.Parallel()
	m := openTiny(t, "bert")
	writeFolder(t, m.dir, strings.Replace(tinyConfigs["bert"], `"vocab_size":24`, `"vocab_size":23`, 1))
	to := filepath.Join(t.TempDir(), "new")
	if err := m.Save(to); err == nil || !strings.Contains(err.Error(), "word_embeddings.weight has shape [23 8], it was opened with [24 8]") {
		t.Errorf("error is %v", err)
	}
	if _, err := os.Stat(to); err == nil {
		t.Error("the folder is there")
	}
}
