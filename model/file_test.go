package model

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/safetensors"
)

func TestSaveAndLoad(t *testing.T) {
	for name, c := range cases() {
		dir := filepath.Join(t.TempDir(), "deep", "er")
		m := made[float32](t, c)
		if err := m.Save(dir); err != nil {
			t.Fatal(err)
		}
		got, err := loadModel[float32](dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		b := batch(c, 1, 2, 5, true)
		if !slices.Equal(logits(t, m, b), logits(t, got, b)) {
			t.Errorf("%s: a loaded model gives other bits", name)
		}
		// To double precision and back nothing is lost.
		wide, err := loadModel[float64](dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := wide.Save(dir); err != nil {
			t.Fatal(err)
		}
		if got, err = loadModel[float32](dir, nil); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(logits(t, m, b), logits(t, got, b)) {
			t.Errorf("%s: double precision in between gives other bits", name)
		}
		for _, p := range []nn.Precision{nn.BFloat16, nn.Int8} {
			few, err := loadModelIn[float32](dir, p, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := made[float32](t, c)
			if err := want.Compress(p); err != nil {
				t.Fatal(err)
			}
			if few.Precision() != p || few.WeightSum() != want.WeightSum() || !slices.Equal(logits(t, few, b), logits(t, want, b)) {
				t.Errorf("%s: a model that is read in %v is not the compressed one", name, p)
			}
		}
	}
}

// Mechanisms that draw as they compute draw the same after Save and Load.
func TestLoadedModelDrawsTheSame(t *testing.T) {
	for _, name := range mechanism.Names() {
		c := with(tiny(Encoder, name), func(c *Config) { c.Context = 64 })
		if c.Validate() != nil { // it is causal alone
			continue
		}
		m, dir := made[float32](t, c), t.TempDir()
		if err := m.Save(dir); err != nil {
			t.Fatal(err)
		}
		got, err := loadModel[float32](dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		if b := batch(c, 1, 2, 60, false); !slices.Equal(logits(t, m, b), logits(t, got, b)) {
			t.Errorf("%s: a loaded model gives other bits", name)
		}
	}
}

// A model that was drawn anew is saved as it is; each layer draws for itself, and
// a loaded one draws the same.
func TestRedrawnModelIsSaved(t *testing.T) {
	c := with(tiny(Decoder, "performer"), func(c *Config) { c.Layers, c.Set = 2, map[string]string{"redraw": "5"} })
	drawn := func(m *modelOf[float32]) (all []float32) {
		for _, p := range m.Constants().All() {
			all = append(all, p.Data...)
		}
		return all
	}
	m, key := made[float32](t, c), rng.New(9)
	redraw := func(m *modelOf[float32], updates int) []float32 {
		if err := m.Redraw(key, updates); err != nil {
			t.Fatal(err)
		}
		return drawn(m)
	}
	first := drawn(m)
	for _, updates := range []int{0, 1, 4, 6} {
		if !slices.Equal(first, redraw(m, updates)) {
			t.Errorf("features change after %d updates", updates)
		}
	}
	five := redraw(m, 5)
	if slices.Equal(first, five) || slices.Equal(five[:len(five)/2], five[len(five)/2:]) {
		t.Error("features are not drawn anew for each layer")
	}
	dir := t.TempDir()
	if err := m.Save(dir); err != nil {
		t.Fatal(err)
	}
	loaded, err := loadModel[float32](dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(drawn(loaded), five) {
		t.Error("the file has other features")
	}
	if ten := redraw(loaded, 10); slices.Equal(ten, five) || !slices.Equal(ten, redraw(m, 10)) {
		t.Error("a loaded model draws other features")
	}
}

func TestNamesOfWeights(t *testing.T) {
	c := with(tiny(EncoderDecoder, "taylorshift"), func(c *Config) { c.Layers, c.Tied, c.Decay = 1, false, LearnedDecay })
	var names []string
	for _, p := range made[float32](t, c).Params().All() {
		if !strings.HasSuffix(p.Name, ".bias") {
			names = append(names, p.Name)
		}
	}
	want := []string{
		"encoder.embed.weight", "encoder.position.weight",
		"encoder.layers.0.attn_norm.weight",
		"encoder.layers.0.attn.q_proj.weight", "encoder.layers.0.attn.k_proj.weight",
		"encoder.layers.0.attn.v_proj.weight", "encoder.layers.0.attn.o_proj.weight", "encoder.layers.0.attn.tau",
		"encoder.layers.0.mlp_norm.weight",
		"encoder.layers.0.mlp.up_proj.weight", "encoder.layers.0.mlp.down_proj.weight",
		"encoder.norm.weight",
		"embed.weight", "position.weight",
		"layers.0.attn_norm.weight",
		"layers.0.attn.q_proj.weight", "layers.0.attn.k_proj.weight",
		"layers.0.attn.v_proj.weight", "layers.0.attn.o_proj.weight", "layers.0.attn.decay.weight", "layers.0.attn.tau",
		"layers.0.cross_norm.weight",
		"layers.0.cross.q_proj.weight", "layers.0.cross.k_proj.weight",
		"layers.0.cross.v_proj.weight", "layers.0.cross.o_proj.weight", "layers.0.cross.tau",
		"layers.0.mlp_norm.weight",
		"layers.0.mlp.up_proj.weight", "layers.0.mlp.down_proj.weight",
		"norm.weight", "head.weight",
	}
	if !slices.Equal(names, want) {
		t.Errorf("names are\n%s\nwant\n%s", strings.Join(names, "\n"), strings.Join(want, "\n"))
	}
}

// rewrite changes the weights file of a folder.
func rewrite(t *testing.T, dir string, change func(tensors map[string]*array.Array, metadata map[string]string)) {
	t.Helper()
	path := filepath.Join(dir, WeightsFile)
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tensors, metadata := map[string]*array.Array{}, f.Metadata()
	for _, name := range f.Names() {
		if tensors[name], err = f.ReadArray(name); err != nil {
			t.Fatal(err)
		}
	}
	change(tensors, metadata)
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := safetensors.Write(out, slices.Collect(maps.Values(tensors)), metadata); err != nil {
		t.Fatal(err)
	}
}

func tensorOf(t *testing.T, name string, shape ...int) *array.Array {
	t.Helper()
	n := 1
	for _, d := range shape {
		n *= d
	}
	a, err := array.New(name, make([]float32, n), shape...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestLoadRefuses(t *testing.T) {
	weights := func(change func(map[string]*array.Array, map[string]string)) func(*testing.T, string) {
		return func(t *testing.T, dir string) { rewrite(t, dir, change) }
	}
	config := func(old, new string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, ConfigFile)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), old) {
				t.Fatalf("config.json has no %s", old)
			}
			if err := os.WriteFile(path, []byte(strings.Replace(string(text), old, new, 1)), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, x := range []struct {
		change func(*testing.T, string)
		want   string
	}{
		{weights(func(a map[string]*array.Array, _ map[string]string) { delete(a, "norm.bias") }), "model.safetensors: norm.bias: no such tensor"},
		{weights(func(a map[string]*array.Array, _ map[string]string) { a["x"] = tensorOf(t, "x", 1) }), `model.safetensors: parameter "x": not in this model`},
		{weights(func(a map[string]*array.Array, _ map[string]string) { a["norm.bias"] = tensorOf(t, "norm.bias", 13) }), "norm.bias: shape is [13], the configuration needs [12]"},
		{weights(func(a map[string]*array.Array, _ map[string]string) {
			a["norm.bias"], _ = array.New("norm.bias", make([]int32, 12), 12)
		}), "norm.bias: dtype is i4"},
		{weights(func(a map[string]*array.Array, _ map[string]string) {
			x := make([]float32, 12)
			x[7] /= x[7]
			a["norm.bias"], _ = array.New("norm.bias", x, 12)
		}), "norm.bias: element 7 is NaN"},
		{weights(func(a map[string]*array.Array, _ map[string]string) {
			x := make([]float32, 11*12)
			x[40] = float32(math.Inf(1))
			a["embed.weight"], _ = array.New("embed.weight", x, 11, 12)
		}), "embed.weight: element 40 is +Inf"},
		{weights(func(_ map[string]*array.Array, m map[string]string) { m["version"] = "2" }), `version: is "2", 1 is read`},
		{weights(func(_ map[string]*array.Array, m map[string]string) { delete(m, "version") }), `version: is "", 1 is read`},
		{weights(func(a map[string]*array.Array, _ map[string]string) {
			clear(a)
			a["x"] = tensorOf(t, "x", 100000)
		}), "model.safetensors: weights: have 1 tensors, the configuration needs one at least for each of 2 layers"},
		{config(`"version": 1`, `"version": 2, "gates": 3`), "config.json: version: is 2, 1 is read"},
		{config(`"version": 1,`, ``), "config.json: version: is missing"},
		{config(`"version": 1,`, `"version": 2, "task": "copy", "model": {},`), "config.json: is the configuration of a run: read its folder ckpt/best, or the run by train.LoadModel"},
		{config(`"width"`, `"breadth"`), `config.json: json: unknown field "breadth"`},
		{config(`"width": 12`, `"width": 13`), "config.json: heads: 3 do not divide width 13"},
		{config(`"width": 12`, `"width": 15`), "shape is [11 12], the configuration needs [11 15]"},
		{config(`"width": 12`, `"width": 1200`), "model.safetensors: weights: have "},
		{config(`fastmax`, `fastmaxx`), `mechanism "fastmaxx": unknown`},
		{config(`{`, ``), "config.json: "},
		{func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, ConfigFile)) }, "config.json: no such file"},
		{func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, WeightsFile)) }, "model.safetensors: no such file"},
		{func(t *testing.T, dir string) { os.Truncate(filepath.Join(dir, WeightsFile), 5000) }, "model.safetensors: "},
	} {
		dir := t.TempDir()
		if err := made[float32](t, tiny(Decoder, "fastmax")).Save(dir); err != nil {
			t.Fatal(err)
		}
		x.change(t, dir)
		for _, p := range []nn.Precision{nn.Float32, nn.Int8} {
			_, err := loadModelIn[float32](dir, p, nil)
			if err == nil || !strings.Contains(err.Error(), x.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v: error is %v, want one line with %q", p, err, x.want)
			}
		}
	}
}

func TestConfigsAreChecked(t *testing.T) {
	for _, x := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Kind = "autoencoder" }, `kind: "autoencoder" is none of`},
		{func(c *Config) { c.Vocab = 0 }, "vocab: 0, needs to be from 1"},
		{func(c *Config) { c.Layers = -1 }, "layers: -1"},
		{func(c *Config) { c.Hidden = -1 }, "hidden: -1"},
		{func(c *Config) { c.Width = 1 << 30 }, "width: 1073741824"},
		{func(c *Config) { c.Width, c.Layers = 3<<20, 1<<20 }, "layers: 1048576 of width 3145728 with vocab 11 have"},
		{func(c *Config) { c.Heads = 5 }, "heads: 5 do not divide width 12"},
		{func(c *Config) { c.KVHeads = 2 }, "kv_heads: 2 do not divide heads 3"},
		{func(c *Config) { c.Positions = "alibi" }, `positions: "alibi" is none of`},
		{func(c *Config) { c.RopeTheta = 100 }, "rope_theta: 100, but positions are learned"},
		{func(c *Config) { c.Positions, c.RopeTheta = Rotary, -1 }, "rope_theta: -1"},
		{func(c *Config) { c.Positions, c.Heads = Rotary, 12 }, "positions: rope needs heads of width 2"},
		{func(c *Config) {
			*c = Config{Kind: Convolutional, Inputs: 1, Outputs: 1, Layers: 2, Width: 4, Context: 8, Conv: 3, Positions: Rotary, Bias: true}
		}, "positions: "},
		{func(c *Config) {
			c.Positions, c.RopeTheta, c.RopeScaling = Rotary, 1, &RopeScaling{Kind: YarnScaling, Factor: 2, OriginalContext: 256}
		}, "rope_theta is 1; set rope_theta above 1"},
		{func(c *Config) { c.SourceVocab = 3 }, "source_vocab: 3, but kind decoder has no source"},
		{func(c *Config) { c.Mechanism = "fastmux" }, `mechanism "fastmux": unknown; nearest: fastmax`},
		{func(c *Config) { c.Order = 99 }, "order 99"},
		{func(c *Config) { c.Set = map[string]string{"colour": "red"} }, "setting colour=red"},
		{func(c *Config) { c.Decay = "slow" }, `decay: "slow" is none of none, fixed, learned`},
		{func(c *Config) { c.Decay, c.Kind = FixedDecay, Encoder }, "decay: fixed, but kind encoder has no causal attention"},
		{func(c *Config) {
			c.Decay, c.Mechanism, c.Set = LearnedDecay, "taylorshift", map[string]string{"output_norm": "true"}
		}, "decay: learned, which taylorshift with these settings does not take"},
		{func(c *Config) { c.Mechanism, c.Set = "polynomial", map[string]string{"norm": "max"} },
			"mechanism: polynomial with these settings is not causal, which kind decoder needs: its statistics are taken over all tokens, later ones too"},
	} {
		err := with(tiny(Decoder, "fastmax"), x.change).Validate()
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("error is %v, want one with %q", err, x.want)
		}
	}
	for name, c := range cases() {
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParseConfig(t *testing.T) {
	const text = `{"kind":"decoder","vocab":65,"layers":4,"heads":4,"width":128,"context":64,
		"positions":"learned","mechanism":"fastmax","set":{"scale":"1/sqrt(D)"},"bias":false,"tied":true}`
	c, err := ParseConfig([]byte(text))
	if err != nil || c.Set["scale"] != "1/sqrt(D)" || c.Params() != 804096 {
		t.Errorf("%+v, %v", c, err)
	}
	for _, x := range []struct{ text, want string }{
		{strings.Replace(text, "heads", "haeds", 1), `unknown field "haeds"`},
		{text + "{}", "more follows"},
		{text[:50], "EOF"},
	} {
		if _, err := ParseConfig([]byte(x.text)); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("error is %v, want one with %q", err, x.want)
		}
	}
}

// claims is the memory that a configuration may take before anything is known of its
// weights: one mechanism, whose arrays have bounds of their own, and sinusoids.
const claims = 512 << 20

// FuzzConfig reads any bytes as a configuration. A valid configuration has a size and
// is unchanged after writing and reading.
func FuzzConfig(f *testing.F) {
	for _, c := range cases() {
		text, err := json.Marshal(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"kind":"decoder","vocab":1,"layers":1,"heads":1,"width":262144,"context":1,"positions":"none","mechanism":"performer"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var c Config
		var err error
		if n := check.AllocatedBytes(func() { c, err = ParseConfig(text) }); n > claims+512*int64(len(text)) {
			t.Errorf("%d bytes are read in %d bytes of memory", len(text), n)
		}
		if err != nil {
			return
		}
		if c.Params() < 1 {
			t.Errorf("%d weights", c.Params())
		}
		again, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := ParseConfig(again); err != nil || back.Params() != c.Params() {
			t.Errorf("%s comes back as %d weights, %v", again, back.Params(), err)
		}
	})
}

// FuzzModel reads any bytes as a configuration and weights. They take the memory of
// weights that are there, not of those that are claimed.
func FuzzModel(f *testing.F) {
	for _, name := range []string{"fastmax", "performer", "mamba-2"} {
		dir := f.TempDir()
		m, err := newModel[float32](tiny(Decoder, name), rng.New(1))
		if err != nil {
			f.Fatal(err)
		}
		if err := m.Save(dir); err != nil {
			f.Fatal(err)
		}
		config, err := os.ReadFile(filepath.Join(dir, ConfigFile))
		if err != nil {
			f.Fatal(err)
		}
		weights, err := os.ReadFile(filepath.Join(dir, WeightsFile))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(config, weights)
		f.Add(bytes.Replace(config, []byte(`"layers": `), []byte(`"layers": 99999`), 1), weights)
		f.Add(bytes.Replace(config, []byte(`"context": `), []byte(`"context": 99999`), 1), weights)
	}
	f.Fuzz(func(t *testing.T, config, weights []byte) {
		n := check.AllocatedBytes(func() {
			c, err := parseConfigFile(config, nil)
			if err != nil {
				return
			}
			if w, err := safetensors.New(bytes.NewReader(weights), int64(len(weights))); err == nil {
				_, _ = readModel[float32](w, c, nn.Float32)
				_, _ = readModel[float32](w, c, nn.Int8)
			}
		})
		if n > claims+512*int64(len(config)+len(weights)) {
			t.Errorf("%d and %d bytes are read in %d bytes of memory", len(config), len(weights), n)
		}
	})
}

// Configurations of a few bytes that ask for the memory of a data centre are refused
// before they get any.
func TestHostileConfigs(t *testing.T) {
	const wide = `{"kind":"decoder","vocab":1,"layers":1,"heads":1,"width":262144,"context":1024,"positions":"none",`
	for _, text := range []string{
		wide + `"mechanism":"performer"}`,
		wide + `"mechanism":"performer","set":{"features":"16384"}}`,
		wide + `"mechanism":"rfa"}`,
		wide + `"mechanism":"fastmax-truncated"}`,
		wide + `"mechanism":"scatterbrain"}`,
		wide + `"mechanism":"linear","set":{"map":"hedgehog"}}`,
		wide + `"mechanism":"transformer-xl","set":{"memory":"1048576"}}`,
		wide + `"mechanism":"luna","set":{"length":"1024","form":"causal"}}`,
		`{"kind":"decoder","vocab":16777216,"layers":16777216,"heads":1,"width":16777216,"context":1,"positions":"none","mechanism":"softmax"}`,
	} {
		var err error
		n := check.AllocatedBytes(func() { _, err = ParseConfig([]byte(text)) })
		if err == nil || !strings.Contains(err.Error(), "possible") {
			t.Errorf("%s: error is %v", text, err)
		}
		if n > 1<<20 {
			t.Errorf("%s takes %d bytes of memory", text, n)
		}
	}
}
