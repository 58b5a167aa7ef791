package published

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/safetensors"
	"github.com/farfield-ml/farfield/nn"
)

// A folder that is opened in fewer bits has the bits of one that is opened in 32 and compressed. What
// Save and Write write of it is read back with the same bits. Written in 16 bits it has the same outputs
// in float32.
func TestWeightsInFewerBitsAreReadAndWritten(t *testing.T) {
	t.Parallel()
	for name, config := range tinyConfigs {
		dir := t.TempDir()
		writeFolder(t, dir, config)
		for _, p := range []nn.Precision{nn.BFloat16, nn.Int8} {
			open := func(dir string, p nn.Precision) *Model {
				t.Helper()
				m, err := OpenWith(dir, Options{Precision: p})
				if err != nil {
					t.Fatalf("%s %v: %v", name, p, err)
				}
				return m
			}
			m, want := open(dir, p), open(dir, nn.Float32)
			if err := want.Model().Compress(p); err != nil {
				t.Fatal(err)
			}
			sum, y := want.Model().WeightSum(), outputs(t, want)
			if got := m.Model().WeightSum(); got != sum || !slices.Equal(outputs(t, m), y) {
				t.Errorf("%s %v: weights are %s, want %s", name, p, got, sum)
			}
			saved, written := t.TempDir(), t.TempDir()
			if err := m.Save(saved); err != nil {
				t.Fatalf("%s %v: %v", name, p, err)
			}
			if err := Write(written, want.Model(), nil); err != nil {
				t.Fatalf("%s %v: %v", name, p, err)
			}
			again := open(saved, p)
			if got := again.Model().WeightSum(); got != sum || !slices.Equal(outputs(t, again), y) {
				t.Errorf("%s %v: saved weights are %s, want %s", name, p, got, sum)
			}
			wide := open(saved, nn.Float32)
			if p == nn.BFloat16 && !slices.Equal(outputs(t, wide), y) {
				t.Errorf("%s: outputs of weights of 16 bits differ in 32", name)
			}
			if err := wide.Save(filepath.Join(t.TempDir(), "copy")); err != nil {
				t.Errorf("%s %v: %v", name, p, err)
			}
			other := open(written, p)
			if !other.HasLogits() && want.HasLogits() { // a head that the family leaves out
				continue
			}
			if got := outputs(t, other); other.HasLogits() == want.HasLogits() && !slices.Equal(got, y) {
				t.Errorf("%s %v: outputs of the written model differ", name, p)
			}
		}
	}
}

// Integers of others, and damaged ones, are refused by name.
func TestForeignIntegersAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFolder(t, dir, tinyConfigs["llama"])
	for config, want := range map[string]string{
		`{"quant_method":"bitsandbytes","load_in_8bit":true}`: `quantization_config: quant_method is "bitsandbytes"`,
		`{"quant_method":"gptq","bits":4}`:                    `quant_method is "gptq"`,
		`{"quant_method":"awq","bits":4}`:                     `quant_method is "awq"`,
		`{"quant_method":"fp8"}`:                              `quant_method is "fp8"`,
		`{"quant_method":"compressed-tensors"}`:               `quant_method is "compressed-tensors"`,
		`{"load_in_8bit":true}`:                               `quant_method is ""`,
		`{"quant_method":"farfield","bits":4}`:                `bits is 4, 8 is read`,
		`{"quant_method":"farfield","groups":4}`:              `quantization_config.groups: is 4`,
	} {
		text := strings.Replace(tinyConfigs["llama"], "{", `{"quantization_config":`+config+",", 1)
		if err := os.WriteFile(filepath.Join(dir, configFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}

	const name = "model.layers.0.mlp.up_proj.weight"
	for _, c := range []struct {
		change func(list map[string]*array.Array)
		want   string
	}{
		{func(list map[string]*array.Array) { delete(list, name+scaleSuffix) }, name + ": has dtype I8 and no scales"},
		{func(list map[string]*array.Array) {
			list[name+scaleSuffix], _ = array.New(name+scaleSuffix, make([]float32, 8), 1, 8)
		}, "_scale: shape is [1 8], the weights need [12 1]"},
		{func(list map[string]*array.Array) {
			list[name+scaleSuffix], _ = array.New(name+scaleSuffix, make([]float32, 12), 12)
		}, "_scale: is f4 [12], float32 for each row or column of [12 8] is needed"},
		{func(list map[string]*array.Array) {
			x := make([]int8, 96)
			x[3] = -128
			list[name], _ = array.New(name, x, 12, 8)
		}, name + ": element 3 is -128"},
	} {
		writeFolder(t, dir, tinyConfigs["llama"])
		m, err := OpenWith(dir, Options{Precision: nn.Int8})
		if err != nil {
			t.Fatal(err)
		}
		to := t.TempDir()
		if err := m.Save(to); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(to, bytesFile)
		f, err := safetensors.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		list := map[string]*array.Array{}
		for _, name := range f.Names() {
			if list[name], err = f.ReadArray(name); err != nil {
				t.Fatal(err)
			}
		}
		f.Close()
		c.change(list)
		var all []*array.Array
		for _, a := range list {
			all = append(all, a)
		}
		w, err := os.Create(path)
		if err == nil {
			err = safetensors.Write(w, all, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		w.Close()
		if _, err := OpenWith(to, Options{Precision: nn.Int8}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// A head of one output has one row, and one scale for it.
func TestOneOutputIn8BitsIsRead(t *testing.T) {
	t.Parallel()
	wide := openClassifier(t, "BertForSequenceClassification", `,"id2label":{"0":"LABEL_0"}`)
	m, err := OpenWith(wide.dir, Options{Precision: nn.Int8})
	if err != nil {
		t.Fatal(err)
	}
	saved := t.TempDir()
	if err := m.Save(saved); err != nil {
		t.Fatal(err)
	}
	for _, p := range []nn.Precision{nn.Float32, nn.BFloat16, nn.Int8} {
		if _, err := OpenWith(saved, Options{Precision: p}); err != nil {
			t.Errorf("%v: %v", p, err)
		}
	}
}
