package train

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
)

func TestPresetsAreComplete(t *testing.T) {
	t.Parallel()
	learned := map[string]bool{}
	for _, p := range Presets() {
		got, err := LookupPreset(p.Name)
		if err != nil || got.Description == "" {
			t.Errorf("%s: %+v, %v", p.Name, got, err)
		}
		c := p.Config
		row, err := task.Lookup(c.Task)
		if err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		learned[p.Name] = true
		var src task.Source = &bare{spec: specOf(t, &c)}
		switch {
		case row.IsText():
			src = tokensToLearn(t, c.Model.Context)
		case c.FirstContext > 0:
			if src, err = c.OpenTask(); err != nil {
				t.Fatal(err)
			}
		}
		_, _, err = c.PrepareTask(src)
		if err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
	for _, row := range task.Rows() {
		if !row.IsText() && !learned[row.Name] {
			t.Errorf("task %s has no preset", row.Name)
		}
	}
	if p, err := LookupPreset(""); err != nil || p.Name != "default" && p.Name != "small" {
		t.Errorf("without a name: %s, %v", p.Name, err)
	}
	if _, err := LookupPreset("huge"); err == nil || !strings.Contains(err.Error(), "there are: default, small, tiny") {
		t.Errorf("error is %v", err)
	}
}

// tokensToLearn returns a text that has windows of that length.
func tokensToLearn(t *testing.T, length int) *task.Text {
	t.Helper()
	text, err := task.NewText(task.InventText(1, 2*length+100), token.NewByteVocabulary())
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// specOf returns what a task's samples are, of its data set as it is published if
// that is not at hand.
func specOf(t *testing.T, c *Config) task.Spec {
	t.Helper()
	src, err := c.OpenTask()
	if err == nil {
		return src.Spec()
	}
	row, lookup := task.Lookup(c.Task)
	if lookup != nil || len(row.DataSets) == 0 && !row.ReadsOwnData() {
		t.Fatal(err)
	}
	s := task.Spec{Name: c.Task, Kind: task.Class, Metric: task.Accuracy, Vocab: 256, Length: 1000, Parts: 1, Classes: 2, Count: [3]int{9, 9, 9}}
	if c.Standardise {
		s.Vocab, s.Channels = 0, 3
	}
	if c.Task == task.PairsName {
		s.Kind, s.Metric, s.Classes = task.Next, task.Nats, 256
	}
	return s
}

// bare has samples that are zeros.
type bare struct{ spec task.Spec }

func (b *bare) Spec() task.Spec { return b.spec }

func (b *bare) Sample(s *task.Sample, _ task.Split, _ int) error {
	s.Tokens, s.Values = make([]int32, 3), make([]float32, 3*b.spec.Channels)
	return nil
}

func (b *bare) Baselines(int) ([]task.Baseline, error) { return nil, nil }

func TestMechanismsTrainWithWhatTrainsWell(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		mechanism string
		order     int
		given     map[string]string
		want      map[string]string
	}{
		{"fastmax", 0, nil, map[string]string{"scale": "1/sqrt(D)", "tau": "1", "window": "64"}},
		{"fastmax", 2, nil, map[string]string{"scale": "1/sqrt(D)", "tau": "1", "window": "64"}},
		{"fastmax", 6, nil, map[string]string{"scale": "1/sqrt(D)", "window": "64"}},
		{"fastmax", 3, nil, map[string]string{"bounded": "true", "window": "64"}},
		{"fastmax", 2, map[string]string{"scale": "1", "window": "0"}, map[string]string{"scale": "1", "window": "0"}},
		{"taylorshift", 0, nil, map[string]string{"tau": "sqrt(D)"}},
		{"taylorshift", 0, map[string]string{"tau": "1"}, map[string]string{"tau": "1"}},
		{"softmax", 0, nil, nil},
	} {
		c := little(tc.mechanism)
		c.Model.Order, c.Model.Set = tc.order, tc.given
		c, _, err := c.PrepareTask(littleText(t))
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Model.Set) != len(tc.want) {
			t.Errorf("%s of order %d: settings are %v, want %v", tc.mechanism, tc.order, c.Model.Set, tc.want)
		}
		for key, want := range tc.want {
			if got := c.Model.Set[key]; got != want {
				t.Errorf("%s of order %d: %s is %q, want %q", tc.mechanism, tc.order, key, got, want)
			}
		}
	}
}

// Each K-th layer has the mechanism, from the first, and the others its near field alone.
func TestFarFieldOfSomeLayers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		mechanism   string
		layers, far int
		set         map[string]string
		want        []int
	}{
		{"fastmax", 5, 0, nil, []int{0, 64, 64, 0, 64}},
		{"fastmax", 5, 1, nil, nil},
		{"fastmax", 5, 0, map[string]string{"window": "0"}, nil},
		{"fastmax", 5, 3, nil, []int{0, 64, 64, 0, 64}},
		{"fastmax", 2, 3, map[string]string{"window": "9"}, []int{0, 9}},
		{"fastmax", 2, 2, map[string]string{"window": "0"}, []int{0, 64}},
		{"fastmax", 1, 3, nil, nil},
		{"softmax", 3, 2, nil, []int{0, 64, 0}},
	} {
		c := little(tc.mechanism)
		c.Model.Layers, c.FarEvery, c.Model.Set = tc.layers, tc.far, tc.set
		c, _, err := c.PrepareTask(littleText(t))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(c.Model.LayerWindows, tc.want) {
			t.Errorf("%s, %d layers, far_every %d: layer_windows are %v, want %v", tc.mechanism, tc.layers, tc.far, c.Model.LayerWindows, tc.want)
		}
	}
}

// A far field of its own order, with the norm of heads, is the default where layers may
// differ and no order is given.
func TestOrderOfTheFarFieldIsTheDefault(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change          func(*Config)
		order, farEvery int
		norm            bool
	}{
		"all is left open":     {func(*Config) {}, 4, 3, true},
		"layers are given":     {func(c *Config) { c.FarEvery = 2 }, 4, 2, true},
		"windows are given":    {func(c *Config) { c.Model.LayerWindows = []int{9} }, 4, 0, true},
		"an order is given":    {func(c *Config) { c.Model.Order = 2 }, 2, 0, false},
		"order and layers":     {func(c *Config) { c.Model.Order, c.FarEvery = 2, 3 }, 2, 3, false},
		"no window":            {func(c *Config) { c.Model.Set = map[string]string{"window": "0"} }, 2, 0, false},
		"decay":                {func(c *Config) { c.Model.Decay = model.LearnedDecay }, 2, 0, false},
		"dropout of attention": {func(c *Config) { c.Model.AttentionDropout = 0.1 }, 2, 0, false},
		"segments":             {func(c *Config) { c.Segment = 8 }, 2, 0, false},
		"wide heads":           {func(c *Config) { c.Model.Heads, c.Model.Width = 1, 20 }, 2, 3, true},
		"another mechanism":    {func(c *Config) { c.SetMechanism("taylorshift") }, 2, 0, false},
	} {
		c := little("fastmax")
		c.Model.Layers = 1
		tc.change(&c)
		c, _, err := c.PrepareTask(littleText(t))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if m := &c.Model; m.Order != tc.order || c.FarEvery != tc.farEvery || m.AttentionNorm != tc.norm {
			t.Errorf("%s: order %d, far_every %d, attention_norm %t; want %d, %d, %t", name, m.Order, c.FarEvery, m.AttentionNorm, tc.order, tc.farEvery, tc.norm)
		}
	}
}

// No window is set where calls cannot have one, and none where a complete configuration
// names none: a run that began before windows were the default goes on as it began.
func TestWindowIsLeftOutWhereItCannotBe(t *testing.T) {
	t.Parallel()
	dropped := little("fastmax")
	dropped.Model.AttentionDropout, dropped.Model.AttentionDropoutKind = 0.1, model.DropProducts
	begun := little("fastmax")
	begun.Model.Order, begun.Model.Set = 2, map[string]string{"scale": "1/sqrt(D)"}
	path := filepath.Join(t.TempDir(), configFile)
	if err := atomicfile.WriteJSON(path, begun); err != nil {
		t.Fatal(err)
	}
	begun, err := ReadConfig(path, Config{})
	if err != nil {
		t.Fatal(err)
	}
	points := unordered{kinds()["pairs"]}
	cloud := littleTask(points, "fastmax")
	cloud.Model.Positions = ""
	for name, x := range map[string]struct {
		c   Config
		src task.Source
	}{
		"products are dropped": {dropped, littleText(t)},
		"a run of before":      {begun, littleText(t)},
		"sets of points":       {cloud, points},
	} {
		c, _, err := x.c.PrepareTask(x.src)
		if err != nil {
			t.Fatal(err)
		}
		if w, ok := c.Model.Set["window"]; ok || c.Model.Set["scale"] != "1/sqrt(D)" {
			t.Errorf("%s: settings are %v, window is %q", name, c.Model.Set, w)
		}
	}
}

// unordered is a source whose positions have no order.
type unordered struct{ task.Source }

func (unordered) IsUnordered() bool { return true }

// Encoders have the order of the mechanism in one of three layers, in heads of any width.
func TestEncodersHaveAFarFieldOfLowOrder(t *testing.T) {
	t.Parallel()
	src := kinds()["pairs"]
	for name, tc := range map[string]struct {
		change          func(*Config)
		order, farEvery int
		norm            bool
	}{
		"all is left open":     {func(*Config) {}, 2, 3, true},
		"wide heads":           {func(c *Config) { c.Model.Heads, c.Model.Width = 1, 20 }, 2, 3, true},
		"an order is given":    {func(c *Config) { c.Model.Order = 2 }, 2, 0, false},
		"dropout of attention": {func(c *Config) { c.Model.AttentionDropout = 0.1 }, 2, 0, false},
		"another mechanism":    {func(c *Config) { c.SetMechanism("taylorshift") }, 2, 0, false},
	} {
		c := littleTask(src, "fastmax")
		tc.change(&c)
		c, _, err := c.PrepareTask(src)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if m := &c.Model; m.Kind != model.Encoder || m.Order != tc.order || c.FarEvery != tc.farEvery || m.AttentionNorm != tc.norm {
			t.Errorf("%s: %s, order %d, far_every %d, attention_norm %t; want an encoder, %d, %d, %t", name, m.Kind, m.Order, c.FarEvery, m.AttentionNorm, tc.order, tc.farEvery, tc.norm)
		}
	}
}

// Another mechanism drops settings that it does not support, the same one none.
func TestSetMechanismDropsSettingsOfTheFormerOne(t *testing.T) {
	t.Parallel()
	var c Config
	c.Model.Mechanism, c.Model.Order, c.Model.Set = "fastmax", 4, map[string]string{"scale": "1"}
	c.Model.Decay, c.Model.KVHeads, c.Model.AttentionDropout = model.LearnedDecay, 2, 0.1
	c.Model.Positions, c.Model.RopeTheta = model.Rotary, 500
	c.Model.AttentionNorm, c.Model.LayerWindows, c.FarEvery = true, []int{0, 64}, 3
	for _, x := range []struct {
		name      string
		order     int
		decay     model.Decay
		kvHeads   int
		dropout   float64
		positions model.Positions
		theta     float64
	}{
		{"fastmax", 4, model.LearnedDecay, 2, 0.1, model.Rotary, 500},
		{"softmax", 0, model.LearnedDecay, 2, 0.1, model.Rotary, 500},
		{"crate", 0, "", 0, 0, model.Rotary, 500},
		{"mamba-2", 0, "", 0, 0, model.NoPosition, 0},
	} {
		c := c
		c.SetMechanism(x.name)
		m := &c.Model
		if m.Mechanism != x.name || m.Order != x.order || (m.Set != nil) != (x.order == 4) || m.Decay != x.decay || m.KVHeads != x.kvHeads ||
			m.AttentionNorm != (x.order == 4) || (m.LayerWindows != nil) != (x.order == 4) || (c.FarEvery == 3) != (x.order == 4) ||
			m.AttentionDropout != x.dropout || m.Positions != x.positions || m.RopeTheta != x.theta {
			t.Errorf("%s: %+v", x.name, *m)
		}
	}
}

// A task of levels is learned by a mixture of logistics, and no model says what is of no
// kind.
func TestModelIsAdaptedToLevels(t *testing.T) {
	t.Parallel()
	spec := task.Spec{Name: "sound", Kind: task.Level, Vocab: 256, Length: 9, Parts: 1, Outputs: 1}
	var c Config
	if err := c.adaptModelToTask(spec); err != nil || c.Model.Kind != model.Decoder || c.Model.Loss != model.Logistics || c.Model.Outputs != 30 || c.Model.Context != 9 {
		t.Errorf("%+v, %v", c.Model, err)
	}
	c.Model.Outputs = 6
	if err := c.adaptModelToTask(spec); err != nil || c.Model.Outputs != 6 {
		t.Errorf("%d outputs, %v", c.Model.Outputs, err)
	}
	c.Model.Kind = model.Encoder
	if err := c.adaptModelToTask(spec); err == nil || fault.InFile(err).Error() != "kind: encoder cannot learn task sound, which needs a decoder; set kind to decoder, or leave it out" {
		t.Errorf("error is %v", err)
	}
	spec.Kind = 99
	if err := c.adaptModelToTask(spec); err == nil || !strings.HasPrefix(err.Error(), "task sound: asks for ") || !strings.HasSuffix(err.Error(), ", which no model says") {
		t.Errorf("error is %v", err)
	}
}

func TestSequencesGrow(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		first, context           int
		firstBatch, batch, steps int
		want                     [][3]int // first step, sequences, tokens of each
	}{
		{0, 15, 9, 3, 30, [][3]int{{0, 3, 15}}},
		{20, 15, 9, 3, 30, [][3]int{{0, 3, 15}}},
		{4, 15, 9, 3, 30, [][3]int{{0, 9, 4}, {11, 4, 8}, {22, 3, 15}}},
		{4, 15, 0, 3, 30, [][3]int{{0, 3, 4}, {17, 3, 8}, {26, 3, 15}}},
		{4, 8, 8, 3, 30, [][3]int{{0, 8, 4}, {13, 3, 8}}},
		{64, 256, 16, 4, 2000, [][3]int{{0, 16, 64}, {667, 8, 128}, {1334, 4, 256}}},
		{1, 8, 8, 1, 2, [][3]int{{0, 8, 1}, {1, 2, 4}}},
	} {
		c := Config{Batch: tc.batch, Steps: tc.steps, FirstContext: tc.first, FirstBatch: tc.firstBatch}
		c.Model.Context = tc.context
		var got [][3]int
		for step := range tc.steps {
			batch, context := c.BatchShape(step)
			if n := len(got); n == 0 || got[n-1][1] != batch || got[n-1][2] != context {
				got = append(got, [3]int{step, batch, context})
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%+v: got %v", tc, got)
		}
	}
}

func TestImpossibleConfigsAreRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		want   string
		change func(*Config)
	}{
		{"fastmax", func(c *Config) { c.Model.Mechanism = "fstmax" }},
		{"width", func(c *Config) { c.Model.Heads = 5 }},
		{"kind", func(c *Config) { c.Model.Kind = "encoder" }},
		{"context: 5000", func(c *Config) { c.Model.Context = 5000 }},
		{"batch: 0", func(c *Config) { c.Batch = 0 }},
		{"first_context: -1", func(c *Config) { c.FirstContext = -1 }},
		{"first_batch: -1", func(c *Config) { c.FirstBatch = -1 }},
		{"steps: 0", func(c *Config) { c.Steps = 0 }},
		{"lr: NaN", func(c *Config) { c.Rate = math.NaN() }},
		{"min_lr: -1", func(c *Config) { c.MinRate = -1 }},
		{"warmup: -1", func(c *Config) { c.WarmUp = -1 }},
		{"beta2: 1", func(c *Config) { c.Beta2 = 1 }},
		{"clip: -1", func(c *Config) { c.Clip = -1 }},
		{"eval_samples: -1", func(c *Config) { c.EvalSamples = -1 }},
		{"accumulate: -1", func(c *Config) { c.Accumulate = -1 }},
		{"optimizer: \"sgd\"", func(c *Config) { c.Optimizer = "sgd" }},
		{"weight_decay: 0.1, but optimizer adam", func(c *Config) { c.Optimizer = Adam }},
		{"model: decay: fixed, which linformer with these settings does not take; set decay to none", func(c *Config) { c.Model.Mechanism, c.Model.Decay = "linformer", model.FixedDecay }},
		{"schedule: \"steps\"", func(c *Config) { c.Schedule = "steps" }},
		{"patience: 3 looks, but eval_every is 0", func(c *Config) { c.Patience, c.EvalEvery = 3, 0 }},
		{"length is not for training", func(c *Config) { c.TaskSet = map[string]string{"length": "9"} }},
		{"standardise", func(c *Config) { c.Standardise = true }},
		{"pool: mean, but task bytelm", func(c *Config) { c.Model.Pool = "mean" }},
		{"save_every: -1", func(c *Config) { c.SaveEvery = -1 }},
		{"far_every: -1", func(c *Config) { c.FarEvery = -1 }},
	} {
		c := little("softmax")
		tc.change(&c)
		if _, err := New(c, littleText(t), ""); err == nil || !strings.Contains(fault.InFile(err).Error(), tc.want) {
			t.Errorf("error is %v, does not say %s", err, tc.want)
		}
	}
	c := little("softmax")
	c.Task = "txt"
	if _, err := c.OpenTask(); err == nil || !strings.Contains(err.Error(), `"txt"`) {
		t.Errorf("error is %v", err)
	}
}

// A Config needs no more than a task, a model, the size of a batch, updates and a rate.
func TestZeroFieldsHaveDefaults(t *testing.T) {
	t.Parallel()
	c := little("softmax")
	want, _, err := c.PrepareTask(littleText(t))
	if err != nil {
		t.Fatal(err)
	}
	want.Accumulate, want.Optimizer, want.Schedule, want.Beta1, want.Beta2 = 1, AdamW, ConstantSchedule, 0.9, 0.99
	c.Accumulate, c.Optimizer, c.Schedule, c.Beta1, c.Beta2 = 0, "", "", 0, 0
	if got, _, err := c.PrepareTask(littleText(t)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v, %v", got, want, err)
	}
}

func TestReadConfigRefusesUnknownFieldsAndVersions(t *testing.T) {
	t.Parallel()
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "config.json")
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c, err := ReadConfig(write(`{"steps": 7, "batch": null, "model": {"layers": 3, "width": null}}`), little("softmax"))
	if err != nil || c.Steps != 7 || c.Model.Layers != 3 || c.Batch != 3 || c.Model.Width != 12 {
		t.Errorf("%+v, %v", c, err)
	}
	for _, tc := range []struct{ text, want string }{
		{`{"step": 7}`, `"step"`},
		{`{"steps": "7"}`, "steps"},
		{`{"version": 3}`, "version is 3"},
		{`{"version": 1, "vocab": "bytes"}`, "version is 1, this program reads 2; train"},
		{`{} {}`, "more follows"},
		{``, "ends early"},
	} {
		path := write(tc.text)
		if _, err := ReadConfig(path, little("softmax")); err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: error is %v", tc.text, err)
		}
	}
}

func TestReadConfigLeavesItsArgument(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.json")
	text := `{"task_set": {"above": "7"}, "model": {"set": {"scale": "2"}, "biases": {"mlp": true}}}`
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"listops", "shapes"} {
		before, err := LookupPreset(name)
		if err != nil {
			t.Fatal(err)
		}
		before.Config.Model.Biases = &model.Biases{}
		want := before.Config.clone()
		if _, err := ReadConfig(path, before.Config); err != nil || !reflect.DeepEqual(before.Config, want) {
			t.Errorf("%s: the argument is %+v, %v, was %+v", name, before.Config, err, want)
		}
	}
	preset, _ := LookupPreset("listops")
	preset.Config.TaskSet["above"] = "7"
	if after, _ := LookupPreset("listops"); after.Config.TaskSet["above"] != "100" {
		t.Errorf("the preset has the settings %v", after.Config.TaskSet)
	}
}

func TestNeedlesOfAShortText(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(path, task.InventText(1, 60000).Text, 0o666); err != nil {
		t.Fatal(err)
	}
	c := needlePreset()
	c.setTaskSettings("data", path)
	src, err := c.OpenTask()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.PrepareTask(src); err == nil || !strings.Contains(err.Error(), "context: 4096 tokens; from 96 to less than the 3000 tokens of the text's part valid") {
		t.Errorf("error is %v", err)
	}
	c.Model.Context, c.FirstContext = 256, 64
	if _, _, err := c.PrepareTask(src); err == nil || !strings.HasPrefix(fault.InFile(err).Error(), "first_context: context: 64 tokens; from 96 ") {
		t.Errorf("error is %v", err)
	}
	c.FirstContext = 128
	trainer, err := New(c, src, filepath.Join(t.TempDir(), "run"))
	if err != nil {
		t.Fatal(err)
	}
	trainer.Close()
}

// A batch of windows of an endless text has the tokens of an update.
func TestTuneBatchOfAnEndlessTask(t *testing.T) {
	t.Parallel()
	for length, want := range map[int]int{15: mostTuneBatch, tuneTokens / 8: 8, tuneTokens: leastTuneSize} {
		c := Config{}
		if c.setTuneBatch(littleText(t).WithWindow(length)); c.Batch != want {
			t.Errorf("windows of %d tokens: batch %d, want %d", length, c.Batch, want)
		}
	}
}

// An error of New names the fields as Go does, and an error of a run's folder as its file does.
func TestErrorsNameFieldsAsTheirReaderDoes(t *testing.T) {
	t.Parallel()
	c := little("fastmax")
	c.EvalSamples = -2
	src := alike(t, "text")(0)
	if _, err := New(c, src, ""); err == nil || !strings.Contains(err.Error(), "EvalSamples: -2 is not from 0") {
		t.Errorf("New: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "run")
	c.EvalSamples = 2
	r, err := New(c, src, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, configFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Replace(text, []byte(`"eval_samples": 2`), []byte(`"eval_samples": -2`), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Resume(src, dir); err == nil || !strings.Contains(err.Error(), "eval_samples: -2 is not from 0") {
		t.Errorf("Resume: %v", err)
	}
}

// A run whose configuration leaves out the version is continued as any other.
func TestVersionZeroIsTheCurrentOne(t *testing.T) {
	c, dir := little("softmax"), t.TempDir()
	c.Version = 0
	trainer, err := New(c, littleText(t), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := trainer.Close(); err != nil {
		t.Fatal(err)
	}
	if trainer, err = Resume(littleText(t), dir); err != nil {
		t.Fatal(err)
	}
	if err := trainer.Close(); err != nil || trainer.Config().Version != configVersion {
		t.Errorf("the version is %d, %v; want %d", trainer.Config().Version, err, configVersion)
	}
	c.Version = configVersion + 1
	if _, err := New(c, littleText(t), ""); err == nil || err.Error() != "Version: is 3, needs 2, or 0 for it" {
		t.Errorf("another version: %v", err)
	}
}
