package model

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/safetensors"
	"github.com/farfield-ml/farfield/internal/strict"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/rng"
)

// Mechanisms that draw as they compute draw the same after Save and Load.
func TestLoadedModelDrawsTheSame(t *testing.T) {
	for _, name := range mechanism.Names() {
		c := with(tiny(Encoder, name), func(c *Config) { c.Context = 64 })
		if c.Validate() != nil { // it is causal alone
			continue
		}
		m, dir := made(t, c), t.TempDir()
		if err := m.Save(dir); err != nil {
			t.Fatal(err)
		}
		got, err := Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		if b := batch(c, 1, 2, 60, false); !slices.Equal(logits(t, m, b), logits(t, got, b)) {
			t.Errorf("%s: a loaded model gives other bits", name)
		}
	}
}

func TestNamesOfWeights(t *testing.T) {
	c := with(tiny(EncoderDecoder, "taylorshift"), func(c *Config) { c.Layers, c.Tied, c.Decay = 1, false, LearnedDecay })
	var names []string
	for _, p := range made(t, c).Params().All() {
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
		if err == nil || !strings.Contains(fault.InFile(err).Error(), x.want) {
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
	c, err := parseConfig([]byte(text))
	if err != nil || c.Set["scale"] != "1/sqrt(D)" || c.Params() != 804096 {
		t.Errorf("%+v, %v", c, err)
	}
	for _, x := range []struct{ text, want string }{
		{strings.Replace(text, "heads", "haeds", 1), `unknown field "haeds"`},
		{text + "{}", "more follows"},
		{text[:50], "ends early"},
	} {
		if _, err := parseConfig([]byte(x.text)); err == nil || !strings.Contains(err.Error(), x.want) {
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
		if n := check.AllocatedBytes(func() { c, err = parseConfig(text) }); n > claims+512*int64(len(text)) {
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
		if back, err := parseConfig(again); err != nil || back.Params() != c.Params() {
			t.Errorf("%s comes back as %d weights, %v", again, back.Params(), err)
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
		wide + `"mechanism":"scatterbrain"}`,
		wide + `"mechanism":"linear","set":{"map":"hedgehog"}}`,
		wide + `"mechanism":"transformer-xl","set":{"memory":"1048576"}}`,
		wide + `"mechanism":"luna","set":{"length":"1024","form":"causal"}}`,
		`{"kind":"decoder","vocab":16777216,"layers":16777216,"heads":1,"width":16777216,"context":1,"positions":"none","mechanism":"softmax"}`,
	} {
		var err error
		n := check.AllocatedBytes(func() { _, err = parseConfig([]byte(text)) })
		if err == nil || !strings.Contains(err.Error(), "possible") {
			t.Errorf("%s: error is %v", text, err)
		}
		if n > 1<<20 {
			t.Errorf("%s takes %d bytes of memory", text, n)
		}
	}
}

// parseConfig reads the JSON of a Config without the version of config.json.
func parseConfig(data []byte) (Config, error) {
	var c Config
	if err := strict.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("config: %w", err)
	}
	return c, fault.InFile(c.Validate())
}

// An error of New names the fields as Go does, and an error of a file as the file does.
func TestErrorsNameFieldsAsTheirReaderDoes(t *testing.T) {
	c := tiny(Decoder, "fastmax")
	c.Heads, c.KVHeads = 3, 2
	if _, err := New(c, rng.New(1)); err == nil || !strings.Contains(err.Error(), "KVHeads: 2 do not divide Heads 3; set KVHeads to 1") {
		t.Errorf("New: %v", err)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parseConfig(text); err == nil || !strings.Contains(err.Error(), "kv_heads: 2 do not divide heads 3; set kv_heads to 1") {
		t.Errorf("a file: %v", err)
	}
}
